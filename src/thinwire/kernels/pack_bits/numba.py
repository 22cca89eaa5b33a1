"""Bit packing on the CPU: one pass through a 64-bit window."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Array
from thinwire.kernels.pack_bits import packed_bytes


@njit(cache=True, nogil=True)
def _pack(codes: Array, bits: int, out: Array) -> None:
    mask = (1 << bits) - 1
    window = np.int64(0)  # the `held` bits that wait: at most 31 + 16
    held, at = 0, 0
    for code in codes:
        window |= (np.int64(code) & mask) << held
        held += bits
        if held >= 32:
            out[at] = window & 0xFF
            out[at + 1] = (window >> 8) & 0xFF
            out[at + 2] = (window >> 16) & 0xFF
            out[at + 3] = (window >> 24) & 0xFF
            at += 4
            window >>= 32
            held -= 32
    while held > 0:
        out[at] = window & 0xFF
        at += 1
        window >>= 8
        held -= 8


@njit(cache=True, nogil=True)
def _unpack(packed: Array, bits: int, out: Array) -> None:
    mask = (1 << bits) - 1
    window = np.int64(0)
    held, at = 0, 0
    for i in range(out.size):
        while held < bits:
            window |= np.int64(packed[at]) << held
            at += 1
            held += 8
        out[i] = window & mask
        window >>= bits
        held -= bits


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    out = torch.empty(packed_bytes(codes.numel(), bits), dtype=torch.uint8)
    _pack(codes.numpy(), bits, out.numpy())
    return out


def unpack_bits(packed: Tensor, count: int, bits: int) -> Tensor:
    out = torch.empty(count, dtype=torch.int32)
    _unpack(packed.numpy(), bits, out.numpy())
    return out
