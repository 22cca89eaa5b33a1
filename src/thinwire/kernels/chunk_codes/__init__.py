"""Values as codes of a few bits, with a scale for each chunk of them: QSGD's levels, even grids.

A chunk is `chunk` values one after the other, the last one perhaps fewer; `chunk` is at most the
number of values. What the codes mean is in `codec.value.qsgd` and `codec.value.chunked`, how they
are found in `reference.py`. There are no kernels for the CPU: what takes its time there are
`pack_bits` and `quantise`, which have their own.
"""

import torch
from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.chunk_codes import reference
from thinwire.kernels.chunk_codes.chunks import Norm

__all__ = ["Norm", "from_levels", "from_points", "to_levels", "to_points"]


def to_levels(
    values: Tensor, chunk: int, norm: Norm, levels: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Each chunk's norm as float32, and of each value sign·level + `levels` as int32."""
    return implementation(reference.to_levels, values.device)(values, chunk, norm, levels, seed)


def to_points(values: Tensor, chunk: int, bits: int, seed: int | None) -> tuple[Tensor, Tensor]:
    """Each chunk's scale as float32, and the number of the grid's point for each value as int32.

    Rounded at random with a seed, to the nearest without; two bits then find a scale that fits.
    """
    return implementation(reference.to_points, values.device)(values, chunk, bits, seed)


def from_levels(
    packed: Tensor, scales: Tensor, count: int, chunk: int, bits: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The values in `dtype`; and (0-D bool) if no level is above the highest, no scale below 0.

    `packed` has `packed_bytes(count, bits)` bytes.
    """
    decode = implementation(reference.from_codes, packed.device)
    return decode(packed, scales, count, chunk, bits, dtype, True)


def from_points(
    packed: Tensor, scales: Tensor, count: int, chunk: int, bits: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The values in `dtype`; and (0-D bool) if no scale is below 0."""
    decode = implementation(reference.from_codes, packed.device)
    return decode(packed, scales, count, chunk, bits, dtype, False)
