"""Rice's code of the gaps between indices, as numbers for Elias and Fano's split.

A gap is q·2^b + r. Rice writes q in unary and r in b bits. With h_i = q_0 + … + q_i, number i is
h_i·2^b + r_i: the split's vector then holds the q's in unary, one after the other, and its fields
hold the r's. The bits are Rice's; that they lie apart lets both be read a word at a time.
"""

from torch import Tensor

from thinwire.kernels import chosen


def from_indices(indices: Tensor, low_bits: int) -> tuple[Tensor, bool]:
    """The number of each index, and whether the indices ascend from 0 on, as they must."""
    if chosen(indices.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.rice import numba

        return numba.from_indices(indices, low_bits)
    from thinwire.kernels.rice import reference

    return reference.from_indices(indices, low_bits)


def to_indices(numbers: Tensor, low_bits: int, rows: int) -> tuple[Tensor, bool]:
    """The index of each number, perhaps in its place; and whether all of them are below `rows`."""
    if chosen(numbers.device, ("reference", "numba")) == "numba":
        from thinwire.kernels.rice import numba

        return numba.to_indices(numbers, low_bits, rows)
    from thinwire.kernels.rice import reference

    return reference.to_indices(numbers, low_bits, rows)
