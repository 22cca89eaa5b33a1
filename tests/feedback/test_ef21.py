"""EF21: the estimate of the gradient, sent as changes."""

import pytest
import torch

from support.feedback import gradients, spec, top
from thinwire.errors import RecipeError
from thinwire.feedback import Ef21
from thinwire.types import Reduced


def one_step(feedback, states, grads, k):
    """All ranks' step in one process: x = g - estimate, its top k delivered, and the mean."""
    xs = [feedback.before(g, s) for g, s in zip(grads, states, strict=True)]
    sent = [top(x, k) for x in xs]
    total = sum(s.to_dense() for s in sent)
    return [
        feedback.after(x, Reduced(total, mine), total / len(grads), state).clone()
        for x, mine, state in zip(xs, sent, states, strict=True)
    ]


def test_the_update_is_the_mean_of_the_estimates():
    feedback = Ef21()
    states = [feedback.init(spec(30, torch.float64)) for _ in range(4)]
    for step in range(6):
        grads = gradients(4, 30, seed=step, dtype=torch.float64)
        updates = one_step(feedback, states, grads, k=3)
        mean = sum(s["estimate"] for s in states) / 4
        for update, state in zip(updates, states, strict=True):
            torch.testing.assert_close(update, mean, rtol=1e-12, atol=1e-12)
            assert torch.equal(update, state["mean_estimate"])


@pytest.mark.parametrize("k", [1, 3, 10, 30])
def test_top_k_contracts_the_error_of_the_estimate(k):
    """‖C(x) - x‖² ≤ (1 - k/n)·‖x‖² for top-k, so under a fixed gradient the error shrinks."""
    feedback = Ef21()
    state = feedback.init(spec(30, torch.float64))
    (grad,) = gradients(1, 30, dtype=torch.float64)
    error = grad.square().sum().item()
    for _ in range(30 // k + 1):
        one_step(feedback, [state], [grad], k)
        smaller = (grad - state["estimate"]).square().sum().item()
        assert smaller <= (1 - k / 30) * error + 1e-28
        error = smaller
    assert error < 1e-28  # every element was sent by now


def test_it_does_not_remember_old_gradients():
    feedback = Ef21()
    state = feedback.init(spec(5))
    one_step(feedback, [state], [torch.full((5,), 100.0)], k=5)
    (update,) = one_step(feedback, [state], [torch.full((5,), 1.0)], k=5)
    assert update.tolist() == [1, 1, 1, 1, 1]
    assert not feedback.conserves


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_are_estimated_in_float32(dtype):
    feedback = Ef21()
    state = feedback.init(spec(3, dtype))
    x = feedback.before(torch.ones(3, dtype=dtype), state)
    assert x.dtype == torch.float32
    assert {value.dtype for value in state.values()} == {torch.float32}


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_with_momentum_the_estimate_follows_the_average(momentum):
    """EF21-SGDM, Algorithm 1, one number at a time: v ← (1-η)·v + η·g; c = C(v - estimate)."""
    feedback = Ef21(momentum)
    states = [feedback.init(spec(30, torch.float64)) for _ in range(3)]
    average, estimate = torch.zeros(2, 3, 30, dtype=torch.float64)
    for step in range(6):
        grads = gradients(3, 30, seed=step, dtype=torch.float64)
        updates = one_step(feedback, states, grads, k=3)
        for i, grad in enumerate(grads):
            average[i] = momentum * average[i] + (1 - momentum) * grad
            estimate[i] += top(average[i] - estimate[i], 3).to_dense()
            torch.testing.assert_close(states[i]["average"], average[i])
            torch.testing.assert_close(states[i]["estimate"], estimate[i])
        torch.testing.assert_close(updates[0], estimate.mean(0))


def test_without_momentum_no_average_is_kept():
    assert Ef21().init(spec(3)).keys() == {"estimate", "mean_estimate"}
    with pytest.raises(RecipeError, match=r"momentum=1\.0"):
        Ef21(momentum=1.0)
