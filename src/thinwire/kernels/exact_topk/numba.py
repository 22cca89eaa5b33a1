"""The k largest magnitudes on the CPU.

Candidates come from a compaction by a guess, else by the threshold that a sample proposes, and the
k-th magnitude among them from their bits: those of a magnitude ascend with it, read as an integer.
If neither lets at least k through and few more (ties, clusters), the bits of all elements decide:
some passes more, and no memory of the tensor's size.
"""

import threading
from functools import partial
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.errors import NonFiniteError
from thinwire.kernels import _threads
from thinwire.kernels._numba import ONE, Array, Indices, trailing_zeros, view
from thinwire.kernels.compact import Found
from thinwire.kernels.compact.numba import WORD, compact_into, word_at
from thinwire.kernels.exact_topk import Largest
from thinwire.kernels.exact_topk.sample import room, sample

DIGIT = 12  # bits: 4096 counters, 32 KiB, and few magnitudes that share all higher bits

_kept = threading.local()


@njit(cache=True, nogil=True)
def _count(
    bits: Array, known: int, shift: int, tallies: Indices, which: int, first: int, end: int
) -> None:
    """Of the magnitudes whose bits above the next digit are `known`: how many have which digit."""
    part, counts = bits[first:end], tallies[which]
    without_sign = (ONE << np.uint64(part.itemsize * 8 - 1)) - ONE
    low, size, high = np.uint64(shift), np.uint64(counts.size), np.uint64(known * counts.size)
    for i in range(part.size):
        digit = ((np.uint64(part[i]) & without_sign) >> low) - high
        if digit < size:
            counts[digit] += 1


@njit(cache=True, nogil=True)
def _collect(
    x: Array, kth: Any, next_above: Any, ties: int, indices: Indices, values: Array
) -> int:
    """All that are larger than `kth` and the first `ties` (≥ 1) that equal it, in order."""
    count, limit = 0, kth
    for at in range(0, x.size, WORD):
        word = word_at(x, at, limit)
        while word and count < indices.size:
            i = at + np.int64(trailing_zeros(word))
            word &= word - ONE
            tied = abs(x[i]) == kth
            if tied and not ties:
                continue  # the last tie was in this very word
            indices[count], values[count] = i, x[i]
            count += 1
            ties -= tied
            if tied and not ties:
                limit = next_above
    return count


def largest(x: Tensor, k: int, guess: Tensor | None = None) -> Largest:
    if guess is not None:
        return largest_of(_candidates(x, k, guess), x, k)
    return by_sample(x, k)


def largest_of(candidates: Found, x: Tensor, k: int) -> Largest:
    return among(candidates, k) or by_sample(x, k)


def by_sample(x: Tensor, k: int) -> Largest:
    """A threshold that lets somewhat more than k through, if the sample is to be believed."""
    sampled = sample(x, k)
    if sampled is None:
        return _exactly(x, k)
    magnitudes, rank = np.abs(view(sampled[0])), sampled[1]
    magnitudes.partition(magnitudes.size - rank)
    guess = torch.tensor(magnitudes[-rank], dtype=x.dtype)
    return among(_candidates(x, k, guess), k) or _exactly(x, k)


def _candidates(x: Tensor, k: int, guess: Tensor) -> Found:
    return compact_into(*kept(room(x.numel(), k), x.dtype), x, guess)


def kept(most: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Indices and values for `most` candidates, in memory that this thread keeps: never a
    caller's to have."""
    at_hand: dict[str, tuple[Tensor, Tensor]] = vars(_kept)
    name = str(dtype)
    if name not in at_hand or at_hand[name][0].numel() < most:
        at_hand[name] = torch.empty(most, dtype=torch.int64), torch.empty(most, dtype=dtype)
    indices, values = at_hand[name]
    return indices[:most], values[:most]


def among(candidates: Found, k: int) -> Largest | None:
    """The largest of the candidates, if all that passed are listed and at least k are."""
    if not k <= int(candidates.count) <= candidates.capacity:
        return None
    indices, values = candidates.trim()
    places, values, kth = _exactly(values, k)
    return indices[places], values, kth


def _kth(source: Array, k: int) -> tuple[Any, int]:
    """The k-th magnitude (k ≤ numel), and how many of its equals are among the k largest.

    A radix selection: one digit of the magnitude's bits after the other, from the highest.
    """
    bits = source.view(f"u{source.itemsize}")
    parts = _threads.pieces(source.size)
    shift, known, ties = source.itemsize * 8 - 1, 0, k
    while shift:
        digit = min(DIGIT, shift)
        shift -= digit
        tallies = np.zeros((len(parts), 1 << digit), np.int64)
        _threads.run(partial(_count, bits, known, shift, tallies), parts)
        total = tallies.sum(0)
        from_the_top = total[::-1].cumsum()
        below_top = int(np.searchsorted(from_the_top, ties))
        value = total.size - 1 - below_top
        ties -= int(from_the_top[below_top] - total[value])
        known = known << digit | value
    return np.array(known, bits.dtype).view(source.dtype)[()], ties


def _exactly(x: Tensor, k: int) -> Largest:
    """Without a guess; k ≤ numel."""
    kth, ties = _kth(view(x), k)
    next_above = np.nextafter(kth, kth.dtype.type(np.inf))
    indices, values = torch.empty(k, dtype=torch.int64), torch.empty(k, dtype=x.dtype)
    if _collect(view(x), kth, next_above, ties, indices.numpy(), values.numpy()) < k:
        raise NonFiniteError(f"NaN among {x.numel()} elements: the {k} largest are undefined")
    return indices, values, torch.tensor(kth, dtype=x.dtype)
