"""Under DDP a run that is stopped and goes on in a new process has the bits of one that is not.

DDP finds its buckets in the first step, so a new process begins with other ones.
"""

import io

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from thinwire.frontends.ddp import Regroup

STEPS, STOP = 5, 3


class Crossed(nn.Module):
    """Layers that are used in another order than they are named in, in several buckets."""

    def __init__(self):
        super().__init__()
        self.last, self.first, self.middle = nn.Linear(64, 9), nn.Linear(20, 64), nn.Linear(64, 64)
        self.phase = nn.Parameter(torch.randn(64, dtype=torch.complex64))

    def forward(self, x):
        turned = (self.first(x) * self.phase).abs()
        return self.last(torch.relu(self.middle(turned)))


def start(group, recipe):
    torch.random.default_generator.manual_seed(0)
    ddp = DDP(Crossed(), process_group=group, bucket_cap_mb=0.005)
    return ddp, tw.compress(ddp, recipe, seed=3)


def train(ddp, rank, steps):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in steps:
        x = torch.randn(4, 20, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()


def bits(ddp, handle):
    weights = [torch.view_as_real(p) if p.is_complex() else p for p in ddp.parameters()]
    return [w.detach().numpy().tobytes() for w in weights], handle.state_dict()["checksum"]


def stop_and_go(group, rank, size, recipe):
    """The buckets before and after DDP found its own, and whether both runs have the same bits."""
    ddp, handle = start(group, recipe)
    train(ddp, rank, range(1))
    first = handle.synchronizer.buckets
    train(ddp, rank, range(1, STOP))
    file = io.BytesIO()
    torch.save((ddp.module.state_dict(), handle.state_dict()), file)
    train(ddp, rank, range(STOP, STEPS))
    file.seek(0)
    model, saved = torch.load(file, weights_only=True)
    resumed, again = start(group, recipe)
    resumed.module.load_state_dict(model)
    again.load_state_dict(saved)
    train(resumed, rank, range(STOP, STEPS))
    return first, saved["buckets"], bits(ddp, handle) == bits(resumed, again)


@pytest.mark.parametrize("recipe", [n for n in tw.recipes() if n != "auto"])  # it asks the clock
def test_every_recipe_goes_on_bit_for_bit(cluster, recipe):
    for first, buckets, same in cluster.run(stop_and_go, 3, tw.recipe(recipe)):
        assert same
        assert len(buckets) > 2
        assert buckets != first, "nothing is shown where none are rebuilt"


def complex_gradients(group, rank, size, recipe):
    ddp, _ = start(group, recipe)
    torch.random.default_generator.manual_seed(0)
    plain = DDP(Crossed(), process_group=group)
    for step in range(2):
        for model in (ddp, plain):
            model.zero_grad()
            random = torch.Generator().manual_seed(100 * step + rank)
            model(torch.randn(4, 20, generator=random)).square().mean().backward()
    return torch.allclose(ddp.module.phase.grad, plain.module.phase.grad)


@pytest.mark.parametrize("recipe", ["dense", "topk(1.0)"])
def test_complex_parameters_are_averaged_as_ddp_does(cluster, recipe):
    assert cluster.run(complex_gradients, 2, tw.recipe(recipe)) == [True, True]


def complex_replicas(group, rank, size, recipe):
    ddp, handle = start(group, recipe)
    train(ddp, rank, range(3))
    handle.close()
    return bits(ddp, handle)[0]


@pytest.mark.parametrize("recipe", tw.recipes())
def test_complex_parameters_are_the_same_on_every_rank(cluster, recipe):
    one, other = cluster.run(complex_replicas, 2, tw.recipe(recipe, bypass=0))
    assert one == other


def test_buckets_as_they_were_as_soon_as_they_are_whole():
    a, b, c = (torch.tensor([i]) for i in range(3))
    regroup = Regroup([["c", "a"], ["b"]])
    assert list(regroup.take({"a": a, "b": b}, last=False)) == []
    assert list(regroup.take({"c": c}, last=True)) == [{"c": c, "a": a}, {"b": b}]
    assert list(Regroup([]).take({"a": a}, last=False)) == [{"a": a}]
    assert list(Regroup([["z"]]).take({"a": a}, last=True)) == [{"a": a}]
