"""Feedbacks keep what was not sent."""

from thinwire.feedback.ef21 import Ef21
from thinwire.feedback.momentum import Momentum
from thinwire.feedback.none import NoFeedback
from thinwire.feedback.residual import Residual

FEEDBACKS = {"none": NoFeedback, "residual": Residual, "momentum": Momentum, "ef21": Ef21}

__all__ = ["FEEDBACKS", "Ef21", "Momentum", "NoFeedback", "Residual"]
