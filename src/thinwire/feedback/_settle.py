"""What the feedbacks share."""

from torch import Tensor

from thinwire.types import Selection, Sparse


def add_delivered(delivered: Selection, buffer: Tensor, alpha: float) -> None:
    """Add alpha times what was delivered to a buffer, touching nothing else of it."""
    if isinstance(delivered, Sparse):
        delivered.add_to(buffer, alpha=alpha)
    else:
        buffer.add_(delivered, alpha=alpha)
