"""What the feedbacks share."""

from torch import Tensor

from thinwire.kernels.settle import settle
from thinwire.types import Selection, Sparse


def add_delivered(delivered: Selection, buffer: Tensor) -> None:
    """Add what was delivered to a buffer, touching nothing else of it."""
    if isinstance(delivered, Sparse):
        delivered.add_to(buffer)
    else:
        buffer.add_(delivered)


def take_delivered(delivered: Selection, residual: Tensor, velocity: Tensor | None = None) -> None:
    """Take what was delivered from the residual; a velocity starts anew where it lay."""
    if isinstance(delivered, Sparse):
        settle(delivered, residual, velocity)
        return
    residual.sub_(delivered)
    if velocity is not None:
        velocity.zero_()
