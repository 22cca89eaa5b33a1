"""With nonfinite="skip" a rank whose weights became NaN comes back, and says so."""

import warnings
from functools import partial

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
import torch.distributed as dist
from torch import nn

import thinwire as tw

NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
KEEPING = tw.recipe("chunk-topk(0.1, 64)", bypass=20)
OPTIMIZERS = {
    "adam": partial(torch.optim.AdamW, lr=0.01),
    "adagrad": partial(torch.optim.Adagrad, lr=0.01),  # does not make its state by the way
}


def flat(parameters):
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def poisoned(group, rank, size, kind, settings):
    """By round, whether the copy moved; what was warned of; whether all ends finite, and as one."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 3))
    optimizer = OPTIMIZERS[kind](model.parameters())
    handle = tw.outer(
        model, optimizer, KEEPING, every=4, outer=NESTEROV, nonfinite="skip", **settings
    )
    moved, last = [], flat(handle.shared.parameters.values())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(24):
            draw = torch.Generator().manual_seed(100 * step + rank)
            optimizer.zero_grad()
            loss = model(torch.randn(6, 8, generator=draw)).square().sum()
            (loss * torch.nan if (rank, step) == (1, 5) else loss).backward()
            optimizer.step()
            if step % 4 == 3:
                handle.state_dict()  # waits for what is under way
            if step % 4 == 2:
                copy = flat(handle.shared.parameters.values())
                moved.append(not torch.equal(copy, last))
                last = copy
        handle.synchronize()
    mine = flat(model.parameters())
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine, group=group)
    handle.close()
    one = bool(mine.isfinite().all()) and torch.equal(*parts)
    return moved, [str(w.message) for w in told if "not finite" in str(w.message)], one


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"delay": 2}, {"delay": 2, "hold": 0.5, "own": 0.4}, {"delay": 2, "blend": 0.5}],
    ids=str,
)
def test_one_round_is_left_out_and_no_more(cluster, kind, settings):
    (moved, told, one), (_, complains, too) = cluster.run(poisoned, 2, kind, settings)
    assert one and too
    assert moved == [False, True, False, True, True, True]  # the first look is before any round
    assert not told
    (said,) = complains
    assert "this rank's weights were not finite ('0.weight', 4 such)" in said
