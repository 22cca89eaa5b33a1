"""Residual feedback: what is not delivered waits; nothing else changes.

Covers feedback/_settle.py.
"""

import pytest
import torch

from support.feedback import alone, gradients, spec, top
from thinwire.errors import RecipeError
from thinwire.feedback import NoFeedback, Residual


def test_x_is_the_residual_itself():
    feedback = Residual()
    state = feedback.init(spec(3))
    x = feedback.before(torch.tensor([1.0, 2.0, 3.0]), state)
    assert x is state["residual"]
    assert x.tolist() == [1, 2, 3]


def test_what_was_sent_leaves_and_the_rest_stays_bit_for_bit():
    feedback = Residual()
    state = feedback.init(spec(50))
    expected = torch.zeros(50)
    for grad in gradients(6, 50):
        x = feedback.before(grad, state)
        expected = expected + grad
        assert torch.equal(x, expected)
        sent = top(x, 5)
        reduced, mean = alone(sent)
        assert feedback.after(x, reduced, mean, state) is mean
        expected[sent.indices] = 0
        assert torch.equal(state["residual"], expected)


def test_the_sender_is_charged_its_rounding():
    """What counts is what arrived, not what was meant."""
    feedback = Residual()
    state = feedback.init(spec(20))
    (grad,) = gradients(1, 20)
    x = feedback.before(grad, state).clone()
    delivered = x.to(torch.bfloat16).float()
    reduced, mean = alone(delivered)
    feedback.after(x, reduced, mean, state)
    assert torch.equal(state["residual"], x - delivered)
    assert state["residual"].abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_wait_in_float32(dtype):
    """A thousand small gradients would vanish beside a large one in half precision."""
    feedback = Residual()
    state = feedback.init(spec(1, dtype))
    feedback.before(torch.tensor([256.0], dtype=dtype), state)
    for _ in range(1000):
        feedback.before(torch.tensor([0.0625], dtype=dtype), state)
    assert state["residual"].dtype == torch.float32
    assert state["residual"].item() == 256 + 1000 * 0.0625


def test_float64_gradients_wait_in_float64():
    state = Residual().init(spec(1, torch.float64))
    x = Residual().before(torch.tensor([1 + 2.0**-50], dtype=torch.float64), state)
    assert x.dtype == torch.float64
    assert x.item() == 1 + 2.0**-50


def test_no_feedback_keeps_nothing():
    feedback = NoFeedback()
    grad = torch.tensor([1.0, 2.0])
    state = feedback.init(spec(2))
    assert state == {}
    assert feedback.before(grad, state) is grad
    reduced, mean = alone(top(grad, 1))
    assert feedback.after(grad, reduced, mean, state) is mean
    assert state == {}
    assert not feedback.conserves


@pytest.mark.parametrize(("decay", "reset_every"), [(0.9, 0), (1.0, 3), (0.5, 2), (0.0, 0)])
def test_what_is_forgotten_is_what_the_settings_say(decay, reset_every):
    feedback = Residual(decay, reset_every)
    state, expected = feedback.init(spec(50, torch.float64)), torch.zeros(50, dtype=torch.float64)
    for step, grad in enumerate(gradients(8, 50, dtype=torch.float64)):
        expected = expected * (0 if reset_every and step % reset_every == 0 else decay) + grad
        x = feedback.at(step).before(grad, state)
        torch.testing.assert_close(x, expected, rtol=1e-14, atol=1e-14)
        sent = top(x, 5)
        feedback.at(step).after(x, *alone(sent), state)
        expected[sent.indices] = 0
    assert not feedback.conserves


def test_without_decay_and_reset_nothing_is_forgotten():
    assert Residual().conserves
    assert Residual().at(1000) is Residual().at(0) or Residual().at(1000) == Residual()
    assert Residual().forgets({"residual": torch.ones(3)}) is None


def test_how_much_a_step_forgets():
    state = {"residual": torch.tensor([-2.0, 4.0])}
    assert Residual(decay=0.9).forgets(state).tolist() == pytest.approx([0.2, 0.4])
    assert Residual(reset_every=4).forgets(state).tolist() == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"decay": 1.1}, "decay=1.1"), ({"decay": -0.1}, "decay"), ({"reset_every": -1}, "reset_e")],
)
def test_refuses(settings, says):
    with pytest.raises(RecipeError, match=says):
        Residual(**settings)
