"""Ordered lists added up, and the largest of their sums.

`reference.py` says what is computed; all implementations give the same bits, and none makes the
host wait for the device.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.largest_sums import reference


def largest_sums(indices: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Ascending indices and values of the `count` largest sums, then padding where there are fewer.

    A list in each row: ascending indices (int64), no two alike, behind them `PADDING` of value
    zero. Values of one index are added in the order of the rows. Sums are compared by the leading
    16 bits of their magnitudes; among equals the lower index is taken. A sum of zero never is.

    A value that is NaN counts as zero, and makes the first value of the result NaN.
    """
    return implementation(reference.largest_sums, indices.device)(indices, values, count)
