"""gTop-k layer by layer, its exchanges beside the backward pass. Covers frontends/ddp.py."""

import threading
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from thinwire.collective import GTopK

WAIT = 30  # seconds at most


def overlapped(group, rank, size, unit):
    """How many exchanges were over before the gradient of the first layer was there, by step."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(40, 40, bias=False) for _ in range(4)))
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.001)
    handle = tw.compress(ddp, f"gtopk(0.05, unit='{unit}')")
    exchange, some, over = GTopK.exchange, threading.Event(), []

    def told(self, s, codec, ctx):
        reduced = exchange(self, s, codec, ctx)
        over.append(ctx.tensor)
        some.set()
        return reduced

    before = []

    def last_gradient(grad):
        if unit != "model" and before:  # DDP's first step has one bucket, for all
            assert some.wait(WAIT), "no exchange ran beside the backward pass"
        before.append(len(over))

    model[0].weight.register_hook(last_gradient)
    with patch.object(GTopK, "exchange", told):
        for _ in range(3):
            over.clear()
            some.clear()
            ddp.zero_grad()
            ddp(torch.randn(6, 40, generator=torch.Generator().manual_seed(rank))).sum().backward()
    return before, len(over), [p.grad.clone() for p in model.parameters()], handle.stats()


@pytest.mark.parametrize(("unit", "exchanges"), [("tensor", 4), ("model", 1)])
def test_layers_are_exchanged_while_others_are_still_computed(cluster, unit, exchanges):
    ranks = cluster.run(overlapped, 2, unit)
    for before, last, grads, stats in ranks:
        assert last == exchanges
        assert all(before[1:]) if unit == "tensor" else before == [0, 0, 0]
        kept = [int(grad.count_nonzero()) for grad in grads]
        assert all(torch.equal(a, b) for a, b in zip(grads, ranks[0][2], strict=True))
        # Each layer has its share, or all have theirs together.
        assert kept == [80] * 4 if unit == "tensor" else sum(kept) == 320
        assert stats["total"]["steps"] == 3
