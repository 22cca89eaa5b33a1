"""What the sparsifiers share: how many to take, compaction by threshold, and the exact largest.

On the CPU the work is done on numpy views, chunk by chunk, with scratch that stays in the cache:
a dense temporary of 100 MB costs more in page faults than the pass itself, and results do not
depend on the number of threads. Elsewhere the same functions are a few torch operations, and a
threshold may stay on the device.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.types import Sparse

Array = NDArray[Any]

CHUNK = 1 << 18  # elements: 1 MiB of float32 scratch, which fits the second-level cache
NARROW_FROM = 1 << 14  # below this many elements a sample costs as much as it saves
_LEAST_SAMPLE = 1 << 12
_LONGEST_STRIDE = 128

# No selection by threshold takes a zero: it would take all of them, and they carry nothing.
_LEAST_MAGNITUDE = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Refuse a setting outside [low, high]."""
    if not low <= value <= high:
        raise RecipeError(f"{name}={value} must be in [{low}, {high}]")


def check_integer(name: str, value: int, low: int) -> None:
    """Refuse a setting that is not an integer of at least `low`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise RecipeError(f"{name}={value} must be an integer of at least {low}")


def take(x: Tensor, indices: Tensor) -> Sparse:
    """The elements of `x` at ascending `indices`."""
    return Sparse(indices, x[indices], x.numel(), ordered=True)


def view(x: Tensor) -> Array:
    """The numpy view of a CPU tensor."""
    array: Array = x.detach().numpy()
    return array


def on_cpu(x: Tensor) -> bool:
    """Whether `view` works."""
    return x.device.type == "cpu"


def chunks(x: Tensor) -> Iterator[tuple[int, Array, Array]]:
    """A CPU tensor piece by piece: where a piece starts, the piece, and its magnitudes.

    The magnitudes are scratch, overwritten by the next piece.
    """
    flat = view(x)
    scratch = np.empty(min(CHUNK, flat.size), flat.dtype)
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK]
        yield start, piece, np.abs(piece, out=scratch[: piece.size])


def above(x: Tensor, threshold: Tensor | float) -> Tensor:
    """Ascending indices of the non-zero elements with |x| ≥ `threshold`."""
    least = _LEAST_MAGNITUDE[x.dtype]
    if not on_cpu(x):
        if isinstance(threshold, Tensor):  # stays on the device: its value is not waited for
            return (x.abs() >= threshold.clamp(min=least)).nonzero().flatten()
        return (x.abs() >= max(threshold, least)).nonzero().flatten()
    limit = view(x).dtype.type(max(float(threshold), least))
    found = [np.flatnonzero(magnitudes >= limit) + start for start, _, magnitudes in chunks(x)]
    return torch.from_numpy(np.concatenate(found)) if found else _no_indices(x)


def _next_above(magnitude: Tensor) -> Tensor:
    """The next number: reaching it is to be larger than `magnitude`."""
    return magnitude.nextafter(torch.full_like(magnitude, math.inf))


def _first_equal(x: Tensor, magnitude: Tensor, count: int) -> Tensor:
    """The `count` lowest indices with |x| == `magnitude`, or as many as there are."""
    if not on_cpu(x):
        return (x.abs() == magnitude).nonzero().flatten()[:count]
    sought = magnitude.item()  # of x's own precision, so the comparison is exact
    found: list[Array] = []
    for start, _, magnitudes in chunks(x):
        if count <= 0:
            break
        found.append(np.flatnonzero(magnitudes == sought)[:count] + start)
        count -= found[-1].size
    return torch.from_numpy(np.concatenate(found)) if found else _no_indices(x)


def _no_indices(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.int64, device=x.device)


def merge(a: Tensor, b: Tensor) -> Tensor:
    """Two disjoint sets of indices as one, ascending."""
    return torch.cat((a, b)).sort().values


def kth_largest(x: Tensor, k: int) -> Tensor:
    """The k-th largest magnitude of `x` (1 ≤ k ≤ n), 0-D."""
    if not on_cpu(x):
        return x.abs().topk(k).values[-1]
    magnitudes = np.abs(view(x))
    magnitudes.partition(magnitudes.size - k)
    return torch.tensor(magnitudes[-k], dtype=x.dtype)


def odd_stride(numel: int, samples: int) -> int:
    """A stride that takes about `samples` of `numel`.

    Odd, because widths of layers are even: a stride that divides the width would look at the
    same few columns of every row.
    """
    return max(1, numel // max(1, samples)) | 1 if samples < numel else 1


def largest(x: Tensor, k: int) -> Tensor:
    """Ascending indices of exactly the `k` largest magnitudes; among equals the lower index.

    A sample proposes a threshold that lets somewhat more than k through; if at least k elements
    pass it, the k largest of all are among them, and if ties at the threshold make up for what
    is missing, these are they. So the sample decides how long this takes, never what comes out:
    one pass, and an exact selection among a few candidates.
    """
    numel = x.numel()
    if k >= numel:
        return torch.arange(numel, device=x.device)
    if k <= 0:
        return _no_indices(x)
    if numel < NARROW_FROM or k > numel // 8:
        return _largest_directly(x, k)
    sample = x[:: odd_stride(numel, max(_LEAST_SAMPLE, numel // _LONGEST_STRIDE))]
    expected = k * sample.numel() / numel
    # Four standard deviations of the sample's count: a second pass is rare, and costs a pass.
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 4)
    while rank < sample.numel():
        threshold = kth_largest(sample, rank)
        candidates = above(x, _next_above(threshold))  # without ties: zeros may be very many
        missing = k - candidates.numel()
        if missing <= 0:
            return candidates[_largest_directly(x[candidates], k)]
        ties = _first_equal(x, threshold, missing)
        if ties.numel() == missing:
            return merge(candidates, ties)
        rank *= 4
    return _largest_directly(x, k)


def _largest_directly(x: Tensor, k: int) -> Tensor:
    """`largest`, by selecting the k-th magnitude among all of them. No sort of n."""
    if k >= x.numel():
        return torch.arange(x.numel(), device=x.device)
    threshold = kth_largest(x, k)
    if not on_cpu(x):
        magnitudes = x.abs()
        surely, tied = magnitudes > threshold, magnitudes == threshold
        room = k - surely.sum()
        return (surely | (tied & (tied.cumsum(0) <= room))).nonzero().flatten()
    surely = above(x, _next_above(threshold))
    return merge(surely, _first_equal(x, threshold, k - surely.numel()))
