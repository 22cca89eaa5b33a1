"""Unsigned integers of 1 to 16 bits, packed with no bit to spare.

Read as one little-endian number, the bytes are Σ code_i · 2^(i·bits); eight codes fill exactly
`bits` bytes.
"""

from torch import Tensor

from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels import implementation
from thinwire.kernels.pack_bits import reference

MOST_BITS = 16


def packed_bytes(count: int, bits: int) -> int:
    """How many bytes `count` codes take."""
    return (count * bits + 7) // 8


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """The low `bits` bits of each int32 in the 1-D `codes`, as ⌈count·bits/8⌉ bytes."""
    _check_width(bits)
    return implementation(reference.pack_bits, codes.device)(codes, bits)


def unpack_bits(packed: Tensor, count: int, bits: int) -> Tensor:
    """The `count` int32 codes in `packed`, which must hold them and nothing else."""
    check_packed(packed, count, bits)
    return implementation(reference.unpack_bits, packed.device)(packed, count, bits)


def check_packed(packed: Tensor, count: int, bits: int) -> None:
    """Refuse bytes that are not those of `count` codes and nothing else."""
    _check_width(bits)
    if packed.numel() != packed_bytes(count, bits):
        raise WireFormatError(
            f"{packed.numel()} bytes cannot be {count} codes of {bits} bits, "
            f"which take {packed_bytes(count, bits)} bytes"
        )
    spare = packed.numel() * 8 - count * bits
    if spare and int(packed[-1]) >> (8 - spare):
        raise WireFormatError(f"the {spare} spare bits after {count} codes are not zero")


def _check_width(bits: int) -> None:
    if not 1 <= bits <= MOST_BITS:
        raise RecipeError(f"bits={bits} must be in 1 … {MOST_BITS}")
