"""Numbers in 16 bits, rounded to nearest; `reference.py` says what is computed."""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.narrow import reference


def narrow(values: Tensor, out: Tensor) -> Tensor:
    """The values in the 16 bits of `out`, a row in each row; rows of both may lie apart.

    Finite values stay finite: too large ones become the largest. NaN and Inf pass.
    """
    return implementation(reference.narrow, values.device)(values, out)
