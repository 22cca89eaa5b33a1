"""Bit packing in torch: eight codes at a time, since eight codes fill exactly `bits` bytes."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad


def _lanes(bits: int) -> Iterator[tuple[int, int, int, int]]:
    """For each of the eight codes: its lane, its first and last byte, and its bit in the first."""
    for lane in range(8):
        first, shift = divmod(lane * bits, 8)
        yield lane, first, (lane * bits + bits - 1) // 8, shift


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    count = codes.numel()
    groups = pad(codes & ((1 << bits) - 1), (0, -count % 8)).view(-1, 8)
    out = codes.new_zeros((groups.shape[0], bits))
    for lane, first, last, shift in _lanes(bits):
        placed = groups[:, lane] << shift
        for byte in range(first, last + 1):
            out[:, byte] |= (placed >> (8 * (byte - first))) & 0xFF
    return out.to(torch.uint8).view(-1)[: (count * bits + 7) // 8]


def unpack_bits(packed: Tensor, count: int, bits: int) -> Tensor:
    groups = pad(packed, (0, -packed.numel() % bits)).view(-1, bits).to(torch.int32)
    out = groups.new_empty((groups.shape[0], 8))
    for lane, first, last, shift in _lanes(bits):
        placed = groups[:, first].clone()
        for byte in range(first + 1, last + 1):
            placed |= groups[:, byte] << (8 * (byte - first))
        out[:, lane] = (placed >> shift) & ((1 << bits) - 1)
    return out.view(-1)[:count]
