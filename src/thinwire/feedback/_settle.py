"""What the feedbacks share."""

from torch import Tensor

from thinwire.kernels.settle import settle
from thinwire.types import Products, Selection, Sparse


def add_delivered(delivered: Selection | Products | None, buffer: Tensor) -> None:
    """Add what was delivered to a buffer, touching nothing else of it."""
    assert delivered is not None, "only a feedback that settles in place lets it be taken"
    if isinstance(delivered, Tensor):
        buffer.add_(delivered)
    else:
        delivered.add_to(buffer)


def take_delivered(
    delivered: Selection | Products | None, residual: Tensor, velocity: Tensor | None = None
) -> None:
    """Take what was delivered from the residual; a velocity starts anew where it lay."""
    if delivered is None:
        return  # it was taken
    if isinstance(delivered, Sparse):
        settle(delivered, residual, velocity)
        return
    if isinstance(delivered, Products):
        delivered.add_to(residual, alpha=-1)
    else:
        residual.sub_(delivered)
    if velocity is not None:
        velocity.zero_()
