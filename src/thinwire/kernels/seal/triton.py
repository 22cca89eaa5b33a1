"""Sealing on CUDA: one launch writes headers and gaps, and one adds the checksums to them."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import mix64
from thinwire.kernels.checksum.triton import OFFSET, add_checksums, checksum_rows
from thinwire.kernels.seal.form import ADDRESS, HEADER_WORDS, SUM

ROWS = 64  # headers that are compared at once
_WORDS, _SUM, _ADDRESS = (tl.constexpr(n) for n in (HEADER_WORDS, SUM, ADDRESS))


@triton.jit
def _header(front, address, offset):
    """The header of these wires, but for the rest's share of the checksum."""
    place = tl.arange(0, _WORDS)
    word = tl.load(address)
    bits = word.to(tl.uint64, bitcast=True)
    weighted = (bits ^ (bits >> 32)) * (mix64(place.to(tl.int64), offset) | 1)
    share = tl.sum(tl.where(place == _ADDRESS, weighted.to(tl.int64, bitcast=True), 0))
    header = tl.load(front + place)
    header += tl.where(place == _ADDRESS, word, 0)
    return header + tl.where(place == _SUM, share, 0)


@triton.jit(do_not_specialize=["stride", "begin", "end", "second_begin", "second_end"])
def _head(wires, front, address, offset, stride, begin, end, second_begin, second_end):
    """Of each wire the header, and zeros from `begin` to `end` and in the second gap."""
    wires += tl.program_id(0).to(tl.int64) * stride
    place = tl.arange(0, _WORDS)
    words = wires.to(tl.pointer_type(tl.int64))
    tl.store(words + place, _header(front, address, offset))
    zeros = tl.zeros((_WORDS,), tl.uint8)  # as many bytes as a word has, and more than a gap
    tl.store(wires + begin + place, zeros, mask=begin + place < end)
    tl.store(wires + second_begin + place, zeros, mask=second_begin + place < second_end)


@triton.jit(do_not_specialize=["rows", "stride"])
def _compare(words, front, address, sums, sound, offset, rows, stride, ROWS: tl.constexpr):
    """One program looks at all headers: they are few and short."""
    place = tl.arange(0, _WORDS)
    header = _header(front, address, offset)
    wrong = tl.zeros((ROWS, _WORDS), tl.int32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS).to(tl.int64)
        total = tl.load(sums + row, mask=row < rows, other=0)
        due = header[None, :] + tl.where(place[None, :] == _SUM, total[:, None], 0)
        there = (row < rows)[:, None] & (place >= 0)[None, :]
        found = tl.load(words + row[:, None] * stride + place[None, :], mask=there, other=0)
        wrong += (there & (found != due)).to(tl.int32)
    tl.store(sound, tl.max(tl.max(wrong, axis=1), axis=0) == 0)


def seal(wires: Tensor, front: Tensor, address: Tensor, gaps: Sequence[tuple[int, int]]) -> None:
    (begin, end), (second_begin, second_end) = (*gaps, (0, 0), (0, 0))[:2]
    _head[(len(wires),)](
        wires, front, address, OFFSET, wires.stride(0), begin, end, second_begin, second_end,
        num_warps=1,
    )  # fmt: skip
    words = wires.view(torch.int64)
    add_checksums(words[:, HEADER_WORDS:], words[:, SUM], HEADER_WORDS)


def is_sealed(wires: Tensor, front: Tensor, address: Tensor) -> Tensor:
    words = wires.view(torch.int64)
    sums = checksum_rows(words[:, HEADER_WORDS:], HEADER_WORDS)
    sound = torch.empty((), dtype=torch.bool, device=wires.device)
    _compare[(1,)](
        words, front, address, sums, sound, OFFSET, len(words), words.stride(0), ROWS, num_warps=4
    )
    return sound
