"""Bits that an ideal coder would take which sees one item at a time.

For indices: the entropy of the gaps' magnitudes (four to an octave, the bits below them as they
are), or of a set of so many indices of which nothing else is known, log2(n choose k)/k, if that is
less. For values that come back exactly: the entropy of each of their bytes; for others: Shannon's
lower bound at the same mean squared error, h(values) - log2(2πe·error)/2.
"""

import math

import torch
from torch import Tensor

from thinwire.kernels import huffman
from thinwire.kernels.huffman.code import WIDTHS


def index_entropy(indices: Tensor, rows: int) -> float:
    """Bits per index."""
    count = indices.numel()
    gaps = indices.diff(prepend=indices.new_full((1,), -1)) - 1
    frequencies = huffman.histogram(gaps)
    below = float((frequencies * torch.from_numpy(WIDTHS)).sum()) / count
    choices = math.lgamma(rows + 1) - math.lgamma(count + 1) - math.lgamma(rows - count + 1)
    return min(_entropy(frequencies) + below, choices / math.log(2) / count)


def byte_entropy(values: Tensor) -> float:
    """Bits per value, of each of its bytes alone."""
    rows = values.contiguous().view(torch.uint8).view(values.numel(), -1)
    return sum(_entropy(torch.bincount(column.long())) for column in rows.unbind(1))


def shannon_bound(values: Tensor, decoded: Tensor) -> float:
    """The fewest bits per value for an error such as `decoded` has, if values are independent.

    Their differential entropy is Vasicek's estimate (1976), from the spacings of √n neighbours.
    """
    x, n = values.double().sort().values, values.numel()
    error = float((decoded.double() - values.double()).square().mean())
    if not error or not math.isfinite(error):
        return 0.0
    width = max(1, math.isqrt(n))
    place = torch.arange(n)
    spacings = x[(place + width).clamp(max=n - 1)] - x[(place - width).clamp(min=0)]
    least = torch.finfo(torch.float32).tiny  # equal values, if there are any
    entropy = float((spacings * n / (2 * width)).clamp(min=least).log2().mean())
    return max(0.0, entropy - math.log2(2 * math.pi * math.e * error) / 2)


def _entropy(frequencies: Tensor) -> float:
    shares = frequencies[frequencies > 0].double() / int(frequencies.sum())
    return max(0.0, -float((shares * shares.log2()).sum()))
