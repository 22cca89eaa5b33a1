"""The largest magnitudes of each chunk on the CPU: while it lies in the first-level cache.

The k-th magnitude of the chunk before, lowered a little, says where to look first: if at least k
reach it, the k largest are among these. It changes the time, not what comes out.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import Array, Indices, add, summands, view
from thinwire.kernels.addend import Addend
from thinwire.kernels.chunk_topk.chunks import Chunks, table_of, total_of
from thinwire.kernels.compact.numba import WORD, scan
from thinwire.kernels.grouped_topk.numba import BINS, kth_magnitude

_LOWERED = 0.8  # times the last chunk's: seldom too few, seldom too many


@njit(cache=True, nogil=True)
def _choose(
    x: Array, grad: Array | None, velocity: Array | None, factor: Any, clear: bool,
    bad: Array | None, bits: Array, table: Indices, first: int, end: int, near: Indices,
    near_values: Array, near_bits: Array, indices: Indices, values: Array,
) -> None:  # fmt: skip
    """What the chunks from `first` to `end` give, written where it belongs.

    `bits` are those of `x` as unsigned integers, `near_bits` those of `near_values`.
    """
    tally = np.zeros(BINS, np.int64)
    without_sign = (np.uint64(1) << np.uint64(bits.itemsize * 8 - 1)) - np.uint64(1)
    smallest = np.nextafter(x.dtype.type(0), x.dtype.type(1))
    limit = x.dtype.type(np.inf)
    for c in range(first, end):
        low, high, at = table[c]
        k = table[c + 1, 2] - at
        block = add(x, grad, velocity, factor, clear, bad, low, high)
        if k == high - low:
            for i in range(low, high):
                indices[at + i - low], values[at + i - low] = i, x[i]
            continue
        passed = scan(block, low, limit, near, near_values, 0)
        listed = passed >= k
        own = near_bits[:passed] if listed else bits[low:high]
        kth, ties = kth_magnitude(own, k, tally)
        last = at
        for i in range(own.size):
            word = np.uint64(own[i]) & without_sign
            tied = word == kth
            if word > kth or (tied and ties):
                place = near[i] if listed else low + i
                indices[at], values[at] = place, x[place]
                if tied:
                    ties -= 1
                    last = at
                at += 1
        limit = max(x.dtype.type(abs(values[last]) * x.dtype.type(_LOWERED)), smallest)


def chunk_topk(x: Tensor, chunks: Chunks, addend: Addend | None = None) -> tuple[Tensor, Tensor]:
    """Every thread has whole chunks, and room of its own for those that come near."""
    table, total = table_of(chunks), total_of(chunks)
    indices, values = torch.empty(total, dtype=torch.int64), x.new_empty(total)
    source, added = view(x), summands(x, addend)
    bits = f"u{source.itemsize}"

    def work(_: int, first: int, end: int) -> None:
        room = chunks.length + WORD  # a whole word is written at once
        near, near_values = np.empty(room, np.int64), np.empty(room, source.dtype)
        _choose(
            source, *added, source.view(bits), table, first, end, near, near_values,
            near_values.view(bits), indices.numpy(), view(values),
        )  # fmt: skip

    begins = table[:-1, 0]
    pieces = [np.searchsorted(begins, piece) for piece in _threads.pieces(x.numel())]
    _threads.run(work, [(int(first), int(end)) for first, end in pieces])
    return indices, values
