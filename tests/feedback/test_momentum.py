"""Momentum correction against DGC's Algorithm 1, written out in plain Python."""

import math

import pytest
import torch

import thinwire as tw
from support.contracts import ranks
from support.contracts.cases import Case, Layer
from support.contracts.laws import check
from support.feedback import alone, gradients, spec, top
from thinwire.errors import RecipeError
from thinwire.feedback import Adam, Momentum, Residual
from thinwire.types import Reduced, Sparse


class Dgc:
    """One worker of the paper, one number at a time."""

    def __init__(self, numel, factor, masking, clip_norm):
        self.factor, self.masking, self.clip_norm = factor, masking, clip_norm
        self.velocity, self.residual = [0.0] * numel, [0.0] * numel

    def accumulate(self, grad):
        norm = math.sqrt(sum(g * g for g in grad))
        if self.clip_norm is not None and norm > self.clip_norm:
            grad = [g * self.clip_norm / norm for g in grad]
        self.velocity = [self.factor * u + g for u, g in zip(self.velocity, grad, strict=True)]
        self.residual = [v + u for v, u in zip(self.residual, self.velocity, strict=True)]
        return self.residual

    def sent(self, indices):
        for i in indices:
            self.residual[i] = 0.0
            if self.masking:
                self.velocity[i] = 0.0


@pytest.mark.parametrize("clip_norm", [None, 2.0, 1e6])
@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("factor", [0.0, 0.5, 0.9])
def test_equals_dgc(factor, masking, clip_norm):
    feedback = Momentum(factor, masking, clip_norm)
    state = feedback.init(spec(40, torch.float64))
    reference = Dgc(40, factor, masking, clip_norm)
    for grad in gradients(8, 40, dtype=torch.float64):
        x = feedback.before(grad, state)
        expected = reference.accumulate(grad.tolist())
        torch.testing.assert_close(x.tolist(), expected, rtol=1e-12, atol=1e-12)
        chosen = top(x, 4)
        reduced, mean = alone(chosen)
        assert feedback.after(x, reduced, mean, state) is mean
        reference.sent(chosen.indices.tolist())
        torch.testing.assert_close(
            state["residual"].tolist(), reference.residual, rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(
            state["velocity"].tolist(), reference.velocity, rtol=1e-12, atol=1e-12
        )


def test_when_all_is_sent_without_masking_it_is_sgd_with_momentum():
    feedback = Momentum(0.9, masking=False)
    state = feedback.init(spec(10, torch.float64))
    weights = torch.zeros(10, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=1.0, momentum=0.9)
    moved = torch.zeros(10, dtype=torch.float64)
    for grad in gradients(10, 10, dtype=torch.float64):
        weights.grad = grad.clone()
        optimiser.step()
        x = feedback.before(grad, state)
        reduced, mean = alone(x.clone())
        moved -= feedback.after(x, reduced, mean, state)
        torch.testing.assert_close(moved, weights.detach())


def test_masking_follows_what_was_delivered_not_what_others_sent():
    feedback = Momentum(0.9)
    state = feedback.init(spec(4))
    x = feedback.before(torch.ones(4), state)
    mine = Sparse(torch.tensor([1]), x[[1]], 4)
    total = torch.tensor([5.0, 1.0, 5.0, 0.0])
    feedback.after(x, Reduced(total, mine), total / 2, state)
    assert state["velocity"].tolist() == [1, 0, 1, 1]
    assert state["residual"].tolist() == [1, 0, 1, 1]


def test_a_delivered_row_masks_all_of_its_elements():
    feedback = Momentum(0.9)
    state = feedback.init(spec(6))
    x = feedback.before(torch.ones(6), state)
    row = Sparse(torch.tensor([1]), torch.ones(1, 2), 6)
    reduced, mean = alone(row)
    feedback.after(x, reduced, mean, state)
    assert state["velocity"].tolist() == [1, 1, 0, 0, 1, 1]
    assert state["residual"].tolist() == [1, 1, 0, 0, 1, 1]


def test_a_dense_delivery_masks_everything():
    feedback = Momentum(0.9)
    state = feedback.init(spec(3))
    x = feedback.before(torch.ones(3), state)
    reduced, mean = alone(x.clone())
    feedback.after(x, reduced, mean, state)
    assert state["velocity"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_clipping_bounds_the_norm_and_keeps_the_direction(dtype):
    feedback = Momentum(0.0, clip_norm=1.0)
    grad = torch.tensor([300.0, 400.0], dtype=dtype)  # its square overflows float16
    x = feedback.before(grad, feedback.init(spec(2, dtype)))
    torch.testing.assert_close(x, torch.tensor([0.6, 0.8]))


def test_clipping_leaves_a_zero_gradient_alone():
    feedback = Momentum(0.9, clip_norm=1.0)
    x = feedback.before(torch.zeros(3), feedback.init(spec(3)))
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("factor", [-0.1, 1.0, 1.5, math.nan])
def test_refuses_a_factor_outside_0_to_1(factor):
    with pytest.raises(RecipeError, match=f"factor={factor}"):
        Momentum(factor)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan])
def test_refuses_a_clip_norm_that_is_not_positive(clip_norm):
    with pytest.raises(RecipeError, match=f"clip_norm={clip_norm}"):
        Momentum(clip_norm=clip_norm)


KEEPING = [name for name in tw.recipes() if isinstance(tw.recipe(name).feedback, Residual)]


@pytest.mark.parametrize("feedback", [Momentum(), Adam(workers=2)], ids=["momentum", "adam"])
@pytest.mark.parametrize("recipe", KEEPING)
def test_behind_every_recipe_that_keeps_a_residual(cluster, recipe, feedback):
    """Whatever the sparsifier and the collective: laws 1 and 2."""
    layers = (Layer((40, 30)), Layer((300,)))
    settings = {"density": 0.1, "feedback": feedback}
    check(cluster.run(ranks.train, 2, Case(recipe, layers, settings=settings)))
