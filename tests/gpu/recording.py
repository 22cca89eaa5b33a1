"""What the ranks of `test_recording` do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import twins
from gpu.ranks import TIMEOUT, Layers
from support.contracts.cases import digest
from thinwire.engine.recording import Exchange, Recording
from thinwire.frontends import Handle
from thinwire.units import clock

WIDTH, DEPTH = 256, 4
BAD_STEP, SAVED_STEP = 12, 18
TIMED = 2  # steps at first, which are launched kernel by kernel


@contextmanager
def soon_replayed() -> Iterator[list[int]]:
    """Steps are replayed after a few; the steps of units that were."""
    before, launches = clock.ALL_UP_TO, Recording.launches
    replayed: list[int] = []

    def noted(self: Recording, step: int, exchange: Exchange) -> Iterator[object]:
        replayed.append(step)
        return launches(self, step, exchange)

    clock.ALL_UP_TO, Recording.launches = TIMED, noted  # type: ignore[misc, method-assign]
    try:
        yield replayed
    finally:
        clock.ALL_UP_TO, Recording.launches = before, launches  # type: ignore[misc, method-assign]


def train(
    group: Any, rank: int, recipe: str, steps: int, device: str, replay: bool
) -> tuple[list[str], Handle]:
    """A digest of the gradients after each step, and of all that is kept at the end."""
    model, _ = twins(lambda: Layers(WIDTH, DEPTH), device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20)
    handle = tw.compress(ddp, recipe, timeout=TIMEOUT, nonfinite="skip", replay=replay)
    data = torch.Generator().manual_seed(rank)
    seen = []
    for step in range(steps):
        x = torch.randn(8, WIDTH, generator=data)
        if (step, rank) == (BAD_STEP, 0):
            x[0, 0] = torch.nan
        if step == SAVED_STEP:
            handle.load_state_dict(handle.state_dict())
        ddp(x.to(device)).square().mean().backward()
        seen.append(digest(torch.cat([p.grad.flatten() for p in model.parameters()]).cpu()))
        ddp.zero_grad()
    tensors = handle.state_dict()["tensors"]
    seen += [digest(v.cpu()) for own in tensors.values() for v in own.values()]
    return seen, handle


def both_ways(
    group: Any, rank: int, size: int, recipe: str, steps: int, device: str
) -> tuple[list[str], list[str], int]:
    with soon_replayed() as none:
        launched, handle = train(group, rank, recipe, steps, device, replay=False)
        handle.close()
    assert not none
    with soon_replayed() as some:
        replayed, handle = train(group, rank, recipe, steps, device, replay=True)
        handle.close()
    return launched, replayed, len(set(some))


def elsewhere_each_time(group: Any, rank: int, size: int, recipe: str, device: str) -> int:
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)
    kept = []
    with soon_replayed() as replayed:
        for step in range(8):
            kept.append(torch.full((5000,), float(step), device=device))
            sync.average("w", kept[-1])
    sync.close()
    return len(replayed)


def counted_both_ways(
    group: Any, rank: int, size: int, recipe: str, steps: int, device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of `stats()` all that is no time."""
    counts = []
    for replay in (False, True):
        with soon_replayed():
            _, handle = train(group, rank, recipe, steps, device, replay)
            total = handle.stats()["total"]
            counts.append({k: v for k, v in total.items() if k not in ("seconds", "first_steps")})
            handle.close()
    return counts[0], counts[1]
