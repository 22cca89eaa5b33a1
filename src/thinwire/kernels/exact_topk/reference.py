"""The k largest magnitudes by one stable sort, whatever the guess."""

from torch import Tensor

from thinwire.kernels.compact import Found


def largest(x: Tensor, k: int, guess: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    magnitudes, order = x.abs().sort(descending=True, stable=True)  # equals stay in order of index
    indices = order[:k].sort().values
    return indices, x[indices], magnitudes[k - 1]


def largest_of(candidates: Found, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    return largest(x, k)
