"""In the middle of a round every rank has a model of its own: going on with another is refused.

Covers frontends/local/checkpoint.py.
"""

from functools import partial

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
from torch import nn

import thinwire as tw

NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
BEFORE = "loaded before outer()"
NOT_LOADED = "not loaded"
AFTER = "loaded after outer()"


class Run:
    """Rounds of four steps."""

    def __init__(self, rank, saved=None, how=AFTER):
        self.rank = rank
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if saved and how == BEFORE:
            self.model.load_state_dict(saved[0])
        recipe = tw.recipe("chunk-topk(0.1, 64)", bypass=20)
        self.handle = tw.outer(self.model, self.optimizer, recipe, every=4, outer=NESTEROV)
        if saved and how == AFTER:
            self.model.load_state_dict(saved[0])
        if saved:
            self.handle.load_state_dict(saved[1])

    def steps(self, numbers):
        for number in numbers:
            draw = torch.Generator().manual_seed(100 * number + self.rank)
            self.optimizer.zero_grad()
            self.model(torch.randn(6, 8, generator=draw)).square().sum().backward()
            self.optimizer.step()
        return self

    def save(self):
        model = {name: value.clone() for name, value in self.model.state_dict().items()}
        return model, self.handle.state_dict()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def refused(group, rank, size, how):
    saved = Run(rank).steps(range(6)).save()
    Run(rank, saved, how)


def resumed(group, rank, size):
    straight = Run(rank).steps(range(12))
    model, state = Run(rank).steps(range(6)).save()
    again = Run(rank, (model, state)).steps(range(6, 12))
    return torch.equal(weights(straight.model), weights(again.model))


@pytest.mark.parametrize("how", [BEFORE, NOT_LOADED])
def test_another_model_than_that_of_the_save(cluster, how):
    """Loaded before, all of them are the first rank's: what rank 1 had walked was lost."""
    why = "this rank's model is not the one that it saved beside the state: '0.weight' differs"
    for raised in cluster.run(refused, 2, how, expect=tw.ThinwireError):
        assert why in raised.text
        assert "Load it after outer()" in raised.text


def test_each_ranks_own_goes_on_bit_for_bit(cluster):
    assert cluster.run(resumed, 2) == [True, True]
