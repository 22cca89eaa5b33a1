"""Through every front door: a step that broke off is saved, and a new group makes it after all.

Bit for bit as a group in which nothing broke off.
"""

import io
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends import test_fsdp as sharding

RECIPE = tw.recipe("topk", density=0.05, bypass=20)
BREAKS_AT, STEPS = 7, 12


def net():
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 30), nn.Linear(30, 5))


@dataclass
class Trained:
    """A model behind one of the doors."""

    model: nn.Module
    optimizer: Any
    handle: Any

    def step(self, rank, number):
        self.optimizer.zero_grad()
        sharding.loss_of(self.model, rank, number).backward()
        self.optimizer.step()

    def weights(self):
        return [getattr(p, "_local_tensor", p).detach() for p in self.model.parameters()]

    def save(self):
        file, optimizer = io.BytesIO(), self.optimizer.state_dict()
        torch.save((self.weights(), optimizer, self.handle.state_dict()), file)
        return file.getvalue()

    def load(self, saved):
        weights, optimizer, state = torch.load(io.BytesIO(saved), weights_only=False)  # DTensors
        for mine, theirs in zip(self.weights(), weights, strict=True):
            mine.copy_(theirs)
        self.optimizer.load_state_dict(optimizer)
        self.handle.load_state_dict(state)

    def bits(self):
        return b"".join(w.numpy().tobytes() for w in self.weights())


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def ddp(group, never_breaks):
    model = DDP(net(), process_group=group, bucket_cap_mb=0.002)
    return Trained(model, adam(model), tw.compress(model, RECIPE))


def fsdp(group, never_breaks):
    model, handle = sharding.compressed(2, RECIPE)
    return Trained(model, adam(model), handle)


def wrap(group, never_breaks):
    model = net()
    optimizer = adam(model)
    return Trained(model, optimizer, tw.wrap(optimizer, model, RECIPE))


def optim(group, never_breaks):
    model = DDP(net(), process_group=group, bucket_cap_mb=0.002)
    optimizer = tw.optim(adam(model), model, RECIPE)
    return Trained(model, optimizer, optimizer.handle)


def outer(group, never_breaks):
    """What a round that breaks off should have sent goes with the next one's."""
    every = (lambda number: 8 if number else 4) if never_breaks else 4
    model = net()
    optimizer = adam(model)
    return Trained(model, optimizer, tw.outer(model, optimizer, RECIPE, every=every))


DOORS = {"ddp": (ddp, 2), "fsdp": (fsdp, 4), "wrap": (wrap, 2), "optim": (optim, 2)}


def never_broke(group, rank, size, start):
    trained = start(group, True)
    for step in range(STEPS):
        trained.step(rank, step)
    return trained.bits()


def breaks(group, rank, size, start):
    """What was raised, whether the weights are those before the step, and what is saved then."""
    trained = start(group, False)
    for step in range(BREAKS_AT):
        trained.step(rank, step)
    before, said = trained.bits(), ""

    def fail(*_):
        raise MemoryError("no room for an exchange")

    if rank == size - 1:
        trained.handle.synchronizer.comm.exchange_sized = fail
    try:
        trained.step(rank, BREAKS_AT)
    except (tw.ExchangeError, MemoryError) as error:
        said = type(error).__name__
    return said, trained.bits() == before, trained.save()


def goes_on(group, rank, size, start, saved, first):
    trained = start(group, False)
    trained.load(saved[rank])
    for step in range(first, STEPS):
        trained.step(rank, step)
    return trained.bits()


@pytest.mark.parametrize("door", DOORS)
def test_a_new_group_makes_the_step_that_broke_off(cluster, door):
    start, size = DOORS[door]
    said, kept, saved = zip(*cluster.run(breaks, size, start), strict=True)
    assert said == ("ExchangeError",) * (size - 1) + ("MemoryError",)
    assert all(kept)
    went_on = cluster.run(goes_on, size, start, saved, BREAKS_AT)
    assert went_on == cluster.run(never_broke, size, start)


def test_local_steps_stay_and_the_next_round_sends_them(cluster):
    said, kept, saved = zip(*cluster.run(breaks, 2, outer), strict=True)
    assert said == ("ExchangeError", "MemoryError")
    assert not any(kept), "the local step was made all the same"
    went_on = cluster.run(goes_on, 2, outer, saved, BREAKS_AT + 1)
    assert went_on == cluster.run(never_broke, 2, outer)
    assert went_on[0] == went_on[1], "the ranks meet in the last step"
