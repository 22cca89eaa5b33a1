"""Feedbacks keep what was not sent. One per file; the contract is in `types`."""

from thinwire.feedback.adam import Adam as Adam
from thinwire.feedback.ef21 import Ef21 as Ef21
from thinwire.feedback.momentum import Momentum as Momentum
from thinwire.feedback.none import NoFeedback as NoFeedback
from thinwire.feedback.residual import Residual as Residual
from thinwire.types import Feedback

FEEDBACKS: tuple[type[Feedback], ...] = (
    NoFeedback,
    Residual,
    Momentum,
    Ef21,
    Adam,
)
