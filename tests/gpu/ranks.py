"""What the ranks of these tests do, beside what they share with the tests on the CPU."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import (
    Both,
    assert_conserved,
    batch,
    identical,
    residuals,
    summed,
    twins,
)
from support.contracts.cases import Case, digest
from support.contracts.laws import Step
from support.contracts.ranks import exchange, poison, repeat, stop_and_go, train

__all__ = ["laws", "poison"]
TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True)
class Laws:
    """What one rank saw of all laws; `support.contracts` says what each part means."""

    steps: list[Step]
    exchanges: list[tuple[str, float]]
    repeated: list[tuple[str, str]]
    resumed: tuple[list[str], list[str]]


def laws(group: Any, rank: int, size: int, case: Case) -> Laws:
    settled = case.recipe != "auto"  # while it chooses, it may choose otherwise
    return Laws(
        steps=train(group, rank, size, case),
        exchanges=[] if case.pipeline().conserves else exchange(group, rank, size, case),
        repeated=repeat(group, rank, size, case, (1, 1)) if settled else [("", "")] * 2,
        resumed=stop_and_go(group, rank, size, case, 2) if settled else ([], []),
    )


def several_backwards(group: Any, rank: int, size: int, recipe: Any, device: str) -> None:
    """Two backward passes a step, both exchanged: the second brings the first's mean again."""
    model, twin = twins(Both, device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.01)
    handle = tw.compress(ddp, recipe)
    for step in range(3):
        ddp.zero_grad()
        twin.zero_grad()
        for turn in range(2):
            before = residuals(handle)
            for p, q in zip(model.parameters(), twin.parameters(), strict=True):
                q.grad = None if p.grad is None else p.grad.clone()
            x = batch(rank, 10 * step + turn, device)
            ddp(x).square().mean().backward()
            twin(x).square().mean().backward()
            assert_conserved(model, twin, before, handle, group, size, 1e-6)
    assert identical(model, group, size)
    handle.close()


def taken_back(
    group: Any, rank: int, size: int, policy: str, view: bool, device: str
) -> tuple[int, list[object]]:
    """How many values the gradients had before a rank brought NaN, and which they have then."""
    model, _ = twins(lambda: Layers(64, 6), device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.01, gradient_as_bucket_view=view)
    handle = tw.compress(ddp, "topk(0.05, bypass=0)", timeout=TIMEOUT, nonfinite=policy)
    for step in range(3):
        ddp.zero_grad()
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(size * step + rank))
        ddp(x.to(device)).square().mean().backward()
    before = len({value for p in model.parameters() for value in p.grad.flatten().tolist()})
    ddp.zero_grad()
    x[0, 0] = torch.nan if rank == 0 else 1.0
    try:
        ddp(x.to(device)).square().mean().backward()
    except tw.NonFiniteError:
        assert policy == "raise"
    after = {value for p in model.parameters() for value in p.grad.flatten().tolist()}
    handle.close()
    return before, sorted({"nan" if value != value else value for value in after}, key=str)


def auto_balances(
    group: Any, rank: int, size: int, auto: Any, folder: str, steps: int, device: str
) -> tuple[float, str, dict[str, str]]:
    """`auto` under DDP until it has chosen: what it lost, the gradients' bits, what it chose."""
    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"
    model, twin = twins(Both, device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.01)
    handle = tw.compress(ddp, auto, timeout=TIMEOUT)
    numel = sum(p.numel() for p in model.parameters())
    balance, moved = torch.zeros(2, numel, dtype=torch.float64, device=device)
    for step in range(steps):
        ddp.zero_grad()
        twin.zero_grad()
        x = batch(rank, step, device)
        ddp(x).square().mean().backward()
        twin(x).square().mean().backward()
        own, update = (torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (twin, model))
        balance += own.double() - update.double()
        moved += own.double().abs() + update.double().abs()
    waiting = residuals(handle)
    nothing = torch.zeros((), device=device)
    balance -= torch.cat(
        [waiting.get(n, nothing).expand(p.numel()) for n, p in model.named_parameters()]
    ).double()
    lost = summed(balance, group).abs() / (summed(moved, group) + 1e-12)
    bits = digest(*(p.grad for p in model.parameters()))
    choice = handle.state_dict()["choice"]
    handle.close()
    return lost.max().item(), bits, choice


def auto_resumes(group: Any, rank: int, size: int, device: str) -> tuple[bool, dict[str, str]]:
    """A choice that was made, saved and loaded: the same bits as without."""
    auto = tw.recipe("auto", density=0.05, choices=("topk", "union"), codec="")
    grads = [
        {n: batch(rank, 10 * step + i, device) for i, n in enumerate("abc")} for step in range(4)
    ]
    straight = tw.Synchronizer(auto, group, timeout=TIMEOUT)
    straight.choosers.load(dict.fromkeys("abc", "topk"))
    for step in range(3):
        straight.average_all({n: g.clone() for n, g in grads[step].items()})
    loaded = tw.Synchronizer(auto, group, timeout=TIMEOUT)
    loaded.load_state_dict(straight.state_dict())
    went_on, again = (
        digest(*sync.average_all({n: g.clone() for n, g in grads[3].items()}).values())
        for sync in (straight, loaded)
    )
    return went_on == again, loaded.state_dict()["choice"]


def means(
    group: Any, rank: int, size: int, recipe: str, device: str
) -> tuple[list[float], list[float], bool, list[float]]:
    """Without DDP: dense and COO gradients in one call, for some steps."""
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)
    for _ in range(3):
        indices = torch.tensor([[rank, rank + 1, rank]], device=device)
        rows = torch.sparse_coo_tensor(
            indices, torch.ones(3, 4, device=device), (size + 1, 4), check_invariants=False
        )
        grads = {
            "w": torch.full((5000,), float(rank), device=device),
            "b": torch.full((7,), 2.0 * rank, device=device),
            "rows": rows,
        }
        out = sync.average_all(grads)
    in_place = out["w"].data_ptr() == grads["w"].data_ptr()
    w, b, means_of_rows = out["w"].unique(), out["b"].unique(), out["rows"].to_dense()[:, 0]
    sync.close()
    return w.tolist(), b.tolist(), in_place and out["rows"].is_sparse, means_of_rows.tolist()


class Layers(nn.Module):
    """Linear layers of one size: with a cap of as many bytes, a bucket each."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def in_subgroup(group: Any, rank: int, size: int, device: str) -> float:
    """The upper half of the ranks alone."""
    upper = dist.new_group(list(range(size // 2, size)))
    if rank < size // 2:
        return -1.0
    sync = tw.Synchronizer("topk(1.0)", upper, timeout=TIMEOUT)
    mean = sync.average("w", torch.full((3000,), float(rank), device=device))
    return mean[0].item()
