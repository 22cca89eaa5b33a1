"""Optimisers in each other, or whose steps call no hooks: each step counts once, or is refused.

Accelerate's and Fabric's are in the tests of these.
"""

import gc
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn

import thinwire as tw


class Subclass(torch.optim.SGD):
    """Its parent's step calls the hooks as well, as soon as there is an optimiser of that class."""

    def step(self, closure=None):
        return super().step(closure)


class TwoHalves(torch.optim.SGD):
    """Two steps of its parent for one of its own."""

    def step(self, closure=None):
        super().step(closure)
        return super().step(closure)


class Lookahead(torch.optim.Optimizer):
    """As some libraries have it: torch does not initialise it, so that it calls no hooks."""

    def __init__(self, base):
        self._base, self.param_groups, self.defaults = base, base.param_groups, base.defaults
        self._optimizer_step_pre_hooks = OrderedDict()
        self._optimizer_step_post_hooks = OrderedDict()

    def step(self, closure=None):
        return self._base.step(closure)


class Averaging(Lookahead):
    """As others have it: what it holds has the name that Accelerate's has."""

    @property
    def optimizer(self):
        return self._base


class Interpolating(torch.optim.Optimizer):
    """One that torch has initialised."""

    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.optimizer = base

    def step(self, closure=None):
        return self.optimizer.step(closure)


def made(kind=torch.optim.SGD):
    model = nn.Linear(3, 2)
    torch.optim.SGD(model.parameters(), 0.1)  # so that its step is hooked
    return model, kind(model.parameters(), lr=0.1)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, Subclass, TwoHalves])
def test_a_step_counts_once_however_many_it_is_made_of(kind):
    model, optimizer = made(kind)
    handle = tw.outer(model, optimizer, "dense", every=10)
    for _ in range(3):
        step(model, optimizer)
    assert handle.stats()["local"]["steps"] == 3
    handle.close()


def test_a_step_that_broke_off_is_no_step_and_the_next_ones_count():
    model, optimizer = made(Subclass)
    handle = tw.outer(model, optimizer, "dense", every=10)

    def breaks_off():
        raise ValueError("in the closure")

    with pytest.raises(ValueError, match="in the closure"):
        optimizer.step(breaks_off)
    for _ in range(3):
        step(model, optimizer)
    assert handle.stats()["local"]["steps"] == 3
    handle.close()


def test_gradients_are_averaged_once_for_a_step_that_is_made_of_two():
    model, optimizer = made(TwoHalves)
    handle = tw.wrap(optimizer, model, "dense")
    for _ in range(3):
        step(model, optimizer)
    assert handle.stats()["total"]["steps"] == 3
    handle.close()


def test_an_optimizer_that_calls_no_hooks_is_told():
    model, inner = made()
    says = r"Lookahead calls no hooks around its step.*super\(\).__init__.*the optimiser inside"
    with pytest.raises(tw.RecipeError, match=says):
        tw.wrap(Lookahead(inner), model, "dense")
    with pytest.raises(tw.RecipeError, match=says):
        tw.outer(model, Lookahead(inner), "dense")


def test_one_that_moves_parameters_after_the_step_inside_is_not_counted_inside():
    """What it makes of a meeting would be another model on each rank."""
    model, inner = made()
    with pytest.raises(tw.RecipeError, match=r"Averaging calls no hooks .* to outer\("):
        tw.outer(model, Averaging(inner), "dense")
    handle = tw.wrap(Averaging(inner), model, "dense")  # before the step inside is early enough
    step(model, Averaging(inner))
    assert handle.stats()["total"]["steps"] == 1
    handle.close()


def test_around_another_the_outermost_that_calls_hooks_is_counted():
    model, inner = made()
    around = Interpolating(inner)
    handle = tw.outer(model, around, "dense", every=10)
    step(model, inner)
    assert handle.stats()["local"]["steps"] == 0
    step(model, around)
    assert handle.stats()["local"]["steps"] == 1
    handle.close()


@pytest.mark.parametrize("front", ["wrap", "outer"])
def test_an_optimiser_that_is_let_go_need_not_be_found_by_the_collector(front):
    """It has moments as large as the model; its hooks hold the handle, which may not hold it."""
    model, optimizer = made()
    given = (optimizer, model) if front == "wrap" else (model, optimizer)
    getattr(tw, front)(*given, "dense")
    step(model, optimizer)
    there = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer, given
        assert there() is None
    finally:
        gc.enable()
