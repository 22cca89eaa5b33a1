"""The k-th largest magnitude of what several ranks hold together, and who takes which ties."""

from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.types import Communicator, State

NO_THRESHOLD = -1  # below the bits of every number, zero included
DIGIT = 8  # bits found in one round
BINS = 1 << DIGIT
_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


def magnitude_bits(values: Tensor) -> Tensor:
    """Integers in the order of |values|: floats without their sign are ordered like their bits.

    NaN comes after Inf, which comes after every number.
    """
    integer = _INTEGERS[values.dtype]
    return values.contiguous().view(integer) & torch.iinfo(integer).max


def recall_threshold(memory: State, like: Tensor, step: int, interval: int) -> int | None:
    """The bits of the remembered threshold in the dtype of `like`, if it is not too old."""
    if "threshold" not in memory or not 0 <= step - int(memory["threshold_at"]) < interval:
        return None
    return int(magnitude_bits(memory["threshold"].to(like.dtype)))


def as_number(threshold: int, like: Tensor) -> Tensor:
    """The magnitude with these bits, in the dtype of `like`."""
    return torch.tensor(threshold, dtype=_INTEGERS[like.dtype]).view(like.dtype)


def remember_threshold(threshold: int, like: Tensor, memory: State, step: int) -> None:
    """Keep the threshold in the unit's memory, as a number, not as bits."""
    memory["threshold"] = as_number(threshold, like)
    memory["threshold_at"] = torch.tensor(step)


def count_passing(bits: Tensor, threshold: int | None) -> list[int]:
    """How many are above the threshold, and how many equal it."""
    if threshold is None:
        return [0, 0]
    return torch.stack(((bits > threshold).sum(), (bits == threshold).sum())).tolist()


def kth_largest(bits: Tensor, k: int, comm: Communicator) -> int:
    """The k-th largest of all ranks' `bits`, exactly; 1 ≤ k ≤ their number.

    Ok-Topk gathers all reduced values on every rank for this (Algorithm 1, line 10). Here digits
    of eight bits are found from the top: the ranks add up how often each digit occurs, see in
    which bin the k-th lies, and go on with the elements in that bin. Four allreduces of 256
    counts for float32, eight for float64, however many values there are.
    """
    kth = 0
    for shift in _shifts(torch.iinfo(bits.dtype).bits):
        digits = (bits >> shift) & (BINS - 1)
        counts = comm.all_reduce(torch.bincount(digits, minlength=BINS))
        at_least = counts.flip(0).cumsum(0).flip(0)  # in this bin or a larger one
        digit = int((at_least >= k).sum()) - 1
        k -= int(at_least[digit] - counts[digit])
        bits = bits[digits == digit]
        kth |= digit << shift
    return kth


def histogram_sizes(bits: int) -> list[int]:
    """How many counts `kth_largest` adds up, digit by digit, of integers with so many bits."""
    return [BINS for _ in _shifts(bits)]


def _shifts(bits: int) -> range:
    """Where each digit begins, the highest first."""
    return range(bits - DIGIT, -1, -DIGIT)


def quotas(tied: Sequence[int], room: int) -> list[int]:
    """How many of its ties each holder may keep, if `room` are kept: the first come first."""
    kept = []
    for count in tied:
        kept.append(max(0, min(count, room)))
        room -= kept[-1]
    return kept


def keep(bits: Tensor, threshold: int, ties: int) -> Tensor:
    """Ascending positions of all above the threshold and the first `ties` that equal it."""
    passing = bits >= threshold
    passing[(bits == threshold).nonzero().flatten()[ties:]] = False
    return passing.nonzero().flatten()
