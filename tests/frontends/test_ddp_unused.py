"""Parameters that a step of DDP does not use, on any rank or on some: which gradients take part.

Covers frontends/ddp.py, engine/backward.py.
"""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import assert_conserved, batch, residuals, twins

CONSERVE = ["topk", "gtopk", "int8", "powersgd", "dense"]


class Heads(nn.Module):
    """One body, and a head for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(20, 40)
        self.heads = nn.ModuleList(nn.Linear(40, 30) for _ in range(2))

    def forward(self, x: torch.Tensor, head: int) -> torch.Tensor:
        return self.heads[head](torch.relu(self.body(x)))


def in_turns(group, rank, size, recipe, views):
    """A task at a time, each with an optimiser of its own: the other head's gradient is left over
    from its last step. Whether that and what waits of it stay, by step, and beside plain DDP.
    """
    model, twin = twins(Heads)
    options = {"find_unused_parameters": True, "gradient_as_bucket_view": views}
    ours, theirs = (
        DDP(m, process_group=group, bucket_cap_mb=0.004, **options) for m in (model, twin)
    )
    handle = tw.compress(ours, tw.recipe(recipe, bypass=10))
    kept = []
    for step in range(6):
        task = step % 2
        other = {f"heads.{1 - task}.weight", f"heads.{1 - task}.bias"}
        waits = {n: r for n, r in residuals(handle).items() if n in other}
        grads = {n: p.grad.clone() for n, p in model.named_parameters() if n in other and step}
        for ddp in (ours, theirs):
            for p in (*ddp.module.body.parameters(), *ddp.module.heads[task].parameters()):
                p.grad = None
            ddp(batch(rank, step), task).square().mean().backward()
        after = residuals(handle)
        kept.append(all(torch.equal(after[n], r) for n, r in waits.items()))
        kept.append(all(torch.equal(model.get_parameter(n).grad, g) for n, g in grads.items()))
        if recipe == "dense":
            pairs = zip(model.parameters(), twin.parameters(), strict=True)
            for p, q in pairs:
                assert (p.grad is None) == (q.grad is None)
                torch.testing.assert_close(p.grad, q.grad)
    return all(kept)


@pytest.mark.parametrize("views", [False, True], ids=["copies", "views"])
@pytest.mark.parametrize("recipe", [*CONSERVE, "dgc"])
def test_what_is_left_over_of_a_gradient_is_not_sent_again(cluster, recipe, views):
    assert cluster.run(in_turns, 2, recipe, views) == [True, True]


def in_some_passes(group, rank, size, recipe):
    """Three passes a step, of which the last alone sends: a head that the first used, on one rank
    or on all, takes part; one that none used keeps what waits. With zeros for a gradient too.
    """
    model, twin = twins(Heads)
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.004, find_unused_parameters=True)
    handle = tw.compress(ddp, tw.recipe(recipe, bypass=10))
    for step, tasks in enumerate([(0, 1, 1), (rank, 1, 1), (1, 1, 1), (0, 0, 1), (1, 1, 0)]):
        before = residuals(handle)
        ddp.zero_grad()
        twin.zero_grad()
        for turn, task in enumerate(tasks):
            x = batch(rank, 10 * step + turn)
            with ddp.no_sync() if turn < 2 else nullcontext():
                (ddp(x, task).square().mean() * (step != 3)).backward()
            (twin(x, task).square().mean() * (step != 3)).backward()
        assert_conserved(model, twin, before, handle, group, size, 1e-6)
    handle.close()


@pytest.mark.parametrize("recipe", CONSERVE)
def test_what_some_ranks_used_in_some_passes_takes_part_and_nothing_is_lost(cluster, recipe):
    cluster.run(in_some_passes, 2, recipe)
