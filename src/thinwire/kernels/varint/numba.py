"""LEB128 on the CPU."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels._numba import Array, Indices


@njit(cache=True, nogil=True)
def _size(numbers: Indices) -> int:
    size = numbers.size
    for number in numbers:
        while number >= 0x80:
            number >>= 7
            size += 1
    return size


@njit(cache=True, nogil=True)
def _encode(numbers: Indices, out: Array) -> None:
    at = 0
    for number in numbers:
        while number >= 0x80:
            out[at] = number & 0x7F | 0x80
            number >>= 7
            at += 1
        out[at] = number
        at += 1


@njit(cache=True, nogil=True)
def _count(data: Array) -> int:
    count = 0
    for byte in data:
        count += byte < 0x80
    return count


@njit(cache=True, nogil=True)
def _decode(data: Array, out: Indices) -> bool:
    at = 0
    for i in range(out.size):
        byte = np.int64(data[at])
        number, shift = byte & 0x7F, 0
        while byte >= 0x80:
            at += 1
            shift += 7
            if shift > 56:
                return False
            byte = np.int64(data[at])
            number |= (byte & 0x7F) << shift
        if byte == 0 and shift > 0:
            return False
        out[i] = number
        at += 1
    return at == data.size


def encode(numbers: Tensor) -> Tensor:
    out = torch.empty(_size(numbers.numpy()), dtype=torch.uint8)
    _encode(numbers.numpy(), out.numpy())
    return out


def decode(data: Tensor) -> tuple[Tensor, bool]:
    view = data.numpy()
    out = torch.empty(_count(view), dtype=torch.int64)
    return out, bool(_decode(view, out.numpy()))
