"""Values in ascending order, and which place each of them took."""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.sort_ranks import reference


def sort_ranks(values: Tensor) -> tuple[Tensor, Tensor]:
    """`sorted` and int32 `ranks` with values[i] = sorted[ranks[i]], for fewer than 2^31 floats.

    Equal values, of which 0.0 and -0.0 are two, keep their order; NaN comes last.
    """
    return implementation(reference.sort_ranks, values.device)(values)
