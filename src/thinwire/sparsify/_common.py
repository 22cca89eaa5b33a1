"""What the sparsifiers share: compaction, samples, and the exact largest."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thinwire.kernels import exact_topk
from thinwire.kernels.compact import Found
from thinwire.kernels.lazy_sum import LazySum
from thinwire.types import Selection, Sparse, Sparsifier, State, StepContext

Array = NDArray[Any]

_LEAST_SAMPLE = 512  # elements; a smaller sample says nothing of a tail
CHUNK = 1 << 18  # elements: 1 MiB of float32 scratch, which fits the second-level cache


class OnePass(Sparsifier):
    """A sparsifier that adds up what it selects from as it looks at it."""

    __slots__ = ()

    def select(self, x: Tensor, state: State, ctx: StepContext) -> Selection:
        """As `select_from`, of a sum that is there already."""
        return self.select_from(LazySum(x), state, ctx)

    @abstractmethod
    def select_from(self, x: LazySum, state: State, ctx: StepContext) -> Selection:
        """The chosen elements of `x`; whatever is asked first adds it up in the same pass."""


def take(x: Tensor, indices: Tensor) -> Sparse:
    """The elements of `x` at ascending `indices`."""
    return Sparse(indices, x[indices], x.numel(), ordered=True)


def take_all(x: Tensor) -> Sparse:
    """Every element."""
    return take(x, torch.arange(x.numel(), device=x.device))


def take_largest(x: Tensor, k: int) -> Sparse:
    """Exactly the `k` largest magnitudes (0 ≤ k ≤ n), ascending; among equals the lower index."""
    if k == 0:
        return take(x, torch.empty(0, dtype=torch.int64, device=x.device))
    if k == x.numel():
        return take_all(x)
    indices, values, _ = exact_topk.largest(x, k)
    return Sparse(indices, values, x.numel(), ordered=True)


def take_largest_of(some: Sparse, k: int) -> Sparse:
    """The `k` largest of some elements, at most as many as there are."""
    places = take_largest(some.values, k).indices
    return Sparse(some.indices[places], some.values[places], some.numel, ordered=True)


def reaching(x: LazySum, threshold: Tensor | float, expected: int) -> Sparse:
    """The non-zero elements with |x| ≥ `threshold`, ascending.

    `expected` is about how many there are: more take a second pass, and no more room than needed.
    """
    if not isinstance(threshold, Tensor):
        limit = torch.tensor(threshold, dtype=torch.float64).to(x.dtype)
        threshold = limit.to(x.device, non_blocking=True)
    passing = x.compact(threshold, min(x.numel, 2 * expected))
    count = int(passing.count)
    if count > passing.capacity:
        passing = x.compact(threshold, count)
    return listed(passing, x.numel)


def listed(found: Found, numel: int) -> Sparse:
    """What was found, in a tensor of `numel` elements."""
    indices, values = found.trim()
    return Sparse(indices, values, numel, ordered=True)


def kth_largest(x: Tensor, k: int) -> Tensor:
    """The k-th largest magnitude of `x` (1 ≤ k ≤ n), 0-D."""
    if x.device.type != "cpu":
        return x.abs().topk(k).values[-1]
    magnitudes = np.abs(x.detach().numpy())
    magnitudes.partition(magnitudes.size - k)
    return torch.tensor(magnitudes[-k], dtype=x.dtype)


def strided_sample(x: LazySum, k: int, share: float, ctx: StepContext) -> Tensor:
    """Every stride-th element, from a start of this step's own: no element is never seen."""
    enough_for_the_tail = 2 * x.numel // k  # two elements beyond the threshold, on average
    wanted = max(_LEAST_SAMPLE, enough_for_the_tail, math.ceil(share * x.numel))
    stride = odd_stride(x.numel, wanted)
    return x.peek(slice(ctx.stream("sampled", shared=False) % stride, None, stride))


def rank_in(sample: Tensor, k: int, x: LazySum) -> int:
    """Where the k-th of `x` should stand in a sample of it."""
    return max(1, math.ceil(k * sample.numel() / x.numel))


def sampled_threshold(x: LazySum, k: int, share: float, ctx: StepContext) -> Tensor:
    """About the k-th magnitude, from a sample (DGC, section 3.1)."""
    sample = strided_sample(x, k, share, ctx)
    return kth_largest(sample, rank_in(sample, k, x))


def odd_stride(numel: int, samples: int) -> int:
    """A stride that takes about `samples` of `numel`.

    Odd, because widths of layers are even: a stride that divides the width would look at the
    same few columns of every row.
    """
    return max(1, numel // max(1, samples)) | 1 if samples < numel else 1


def chunks(x: Tensor) -> Iterator[tuple[Array, Array]]:
    """A CPU tensor piece by piece, with each piece's magnitudes.

    These are scratch that stays in the cache, overwritten by the next: a dense temporary of 100 MB
    costs more in page faults than the pass itself.
    """
    flat: Array = x.detach().numpy()
    scratch = np.empty(min(CHUNK, flat.size), flat.dtype)
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK]
        yield piece, np.abs(piece, out=scratch[: piece.size])
