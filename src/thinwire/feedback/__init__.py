"""Feedbacks keep what was not sent. One per file; the contract is in `types`."""

from thinwire.feedback.ef21 import Ef21
from thinwire.feedback.momentum import Momentum
from thinwire.feedback.none import NoFeedback
from thinwire.feedback.residual import Residual
from thinwire.types import Feedback

FEEDBACKS: tuple[type[Feedback], ...] = (NoFeedback, Residual, Momentum, Ef21)

__all__ = ["FEEDBACKS", "Ef21", "Momentum", "NoFeedback", "Residual"]
