"""How many kernels a steady step of one unit launches on a GPU: the host's time goes there.

Covers engine/step.py, and all pieces on the way. Counted on the CPU, see `support.launches`.
"""

import pytest
import torch

import thinwire as tw
from support.interpreter import hasten
from support.launches import as_on_a_gpu, launches
from thinwire.engine.backward import BackwardPass
from thinwire.kernels import use

RANKS, NUMEL = 4, 3000
STEPS = 6  # the last one takes a threshold that an earlier one sampled
MOST = {
    "topk(0.01)": 33,
    "topk(0.01, codec='regional+bf16', unit='bucket')": 35,
    "dgc(0.01, codec='regional+bf16', unit='bucket')": 35,
    "dragonn(0.01, codec='regional+bf16', unit='bucket')": 32,
    "ok-topk(0.01, codec='regional+bf16', unit='bucket')": 54,
    "union(0.01)": 63,
}


def last_step(group, rank, size, recipe):
    hasten()
    data = torch.Generator().manual_seed(rank)
    with as_on_a_gpu():
        sync = tw.Synchronizer(recipe, group)
        for turn in range(STEPS):
            bucket = torch.randn(3 * NUMEL, generator=data)
            grads = dict(zip("abc", bucket.split(NUMEL), strict=True))
            # Those before bring the same bits without the interpreter, and one makes what is kept.
            late = turn >= STEPS - 2
            with use("triton" if late else None), launches() as counts:
                step = BackwardPass(sync)
                step.add(grads)
                step.finish()
        sync.close()
    return counts


@pytest.mark.parametrize("recipe", MOST)
def test_a_step_is_few_launches(cluster, recipe):
    for counts in cluster.run(last_step, RANKS, recipe):
        assert counts.total() <= MOST[recipe], sorted(counts.items())


def test_what_is_counted():
    with launches() as counts:
        x = torch.ones(6).view(2, 3)
        x[0].add_(1)
        torch.empty_like(x).copy_(x.t().reshape(2, 3))
    assert counts == {"ones": 1, "add_": 1, "clone": 1, "copy_": 1}
