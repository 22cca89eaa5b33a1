"""What was delivered leaves the residual; where it lay, a velocity starts anew.

`reference.py` says what is computed. Only the delivered elements are touched.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.settle import reference
from thinwire.types import Sparse


def settle(delivered: Sparse, residual: Tensor, velocity: Tensor | None = None) -> None:
    """residual -= delivered, and velocity = 0 there. Values that are not finite count as zero.

    They are the mark of a rank whose gradient was not finite: see `Pipeline.prepare`.
    """
    implementation(reference.settle, residual.device)(delivered.elements(), residual, velocity)
