"""The reorder mapping of DeepReduce (section 5.1): a rank for each value, ⌈log2 count⌉ bits."""

import torch
from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.kernels.pack_bits import MOST_BITS, pack_bits, packed_bytes, unpack_bits


def rank_bits(count: int) -> int:
    """Bits for a rank below `count`."""
    return max(0, count - 1).bit_length()


def ranks_bytes(count: int) -> int:
    """How many bytes `pack_ranks` makes of `count` ranks."""
    return sum(packed_bytes(count, bits) for _, bits in _fields(count))


def pack_ranks(ranks: Tensor) -> Tensor:
    """The int32 ranks as bytes: all their low 16 bits first, then what is above."""
    packed = [pack_bits(ranks >> shift, bits) for shift, bits in _fields(ranks.numel())]
    return torch.cat(packed) if packed else ranks.new_empty(0, dtype=torch.uint8)


def unpack_ranks(packed: Tensor, count: int) -> Tensor:
    """The ranks, each of 0 … count - 1 once; `packed` must have `ranks_bytes(count)` bytes."""
    ranks = torch.zeros(count, dtype=torch.int32, device=packed.device)
    start = 0
    for shift, bits in _fields(count):
        end = start + packed_bytes(count, bits)
        ranks |= unpack_bits(packed[start:end], count, bits) << shift
        start = end
    if bool((ranks >= count).any()):
        raise WireFormatError(f"ranks must be below {count}, found {int(ranks.max())}")
    taken = torch.zeros(count, dtype=torch.bool, device=packed.device)
    if not bool(taken.index_fill_(0, ranks.long(), True).all()):
        raise WireFormatError(f"ranks must be each of 0 … {count - 1} once, found some twice")
    return ranks


def _fields(count: int) -> list[tuple[int, int]]:
    """Shift and bits of what is packed together: the packer takes 16 bits at most."""
    bits = rank_bits(count)
    return [(s, min(MOST_BITS, bits - s)) for s in range(0, bits, MOST_BITS)]
