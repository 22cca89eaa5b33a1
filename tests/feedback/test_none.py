"""No feedback: the gradient goes in, the mean comes out, and nothing is kept."""

import torch

import thinwire as tw
from thinwire.feedback import NoFeedback
from thinwire.types import Reduced


def test_in_and_out() -> None:
    spec = tw.TensorSpec("w", 3, torch.float32, torch.device("cpu"))
    feedback, grad, mean = NoFeedback(), torch.randn(3), torch.randn(3)
    state = feedback.init(spec)
    assert state == {}
    assert feedback.before(grad, state) is grad
    assert feedback.after(grad, Reduced(mean, mean), mean, state) is mean
    assert not feedback.conserves
