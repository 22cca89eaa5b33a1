"""Elements of several lists put in their places: for lists that have no index in common.

`reference.py` says what is computed. `batched_decode` is for lists that have.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.place_rows import reference


def place_rows(indices: Tensor, values: Tensor, out: Tensor, divisor: int = 1) -> Tensor:
    """The values, divided, at their indices of the flat `out`; nothing else of it is touched.

    A list in each row, whose values may lie apart from each other's. An index that is not below
    the number of elements is padding.

    Returned is (0-D, int64) whether some list begins with a NaN, which is how a rank whose gradient
    was not finite marks it.
    """
    return implementation(reference.place_rows, out.device)(indices, values, out, divisor)
