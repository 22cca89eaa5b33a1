"""Rice's code of the gaps between indices, as numbers for Elias and Fano's split.

A gap is q·2^b + r. Rice writes q in unary and r in b bits. With h_i = q_0 + … + q_i, number i is
h_i·2^b + r_i: the split's vector then holds the q's in unary, one after the other, and its fields
hold the r's. The bits are Rice's; that they lie apart lets both be read a word at a time.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.rice import reference


def from_indices(indices: Tensor, low_bits: int) -> tuple[Tensor, Tensor]:
    """The number of each index, and (0-D bool) whether these ascend from 0 on, as they must."""
    return implementation(reference.from_indices, indices.device)(indices, low_bits)


def to_indices(numbers: Tensor, low_bits: int, rows: int) -> tuple[Tensor, Tensor]:
    """The index of each number, perhaps in its place; and (0-D bool) if all are below `rows`.

    The high parts of the numbers, from bit `low_bits` on, do not descend.
    """
    return implementation(reference.to_indices, numbers.device)(numbers, low_bits, rows)
