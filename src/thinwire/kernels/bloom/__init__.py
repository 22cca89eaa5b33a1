"""Bloom filters over row numbers: which rows may have been put in.

A row's 64-bit hash gives two 32-bit numbers, a and b, the second odd; its bits are at
⌊((a + i·b) mod 2^32)·size/2^32⌋ for i = 0, 1, … This is double hashing (Kirsch and Mitzenmacher,
"Less hashing, same performance", ESA 2006), brought into range without a division (Lemire, TOMACS
2019). Nothing is tabulated, where DeepReduce keeps a table of rows × hashes (section 4).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thinwire.kernels import Implementation, implementation
from thinwire.rng import mix64

BUILT: tuple[Implementation, ...] = ("reference", "numba", "triton")
MOST_BITS = 2**31 - 1  # so that a 32-bit hash times the size is still an int64


@dataclass(frozen=True, slots=True)
class Filter:
    """`size` bits in int64 words, and how to find a row's."""

    words: Tensor
    size: int
    hashes: int
    salt: int


def insert(rows: Tensor, size: int, hashes: int, salt: int) -> Filter:
    """The filter that holds int64 `rows`."""
    words = _implementation(rows.device).insert(rows, size, hashes, salt)
    return Filter(words, size, hashes, salt)


def positives(filter: Filter, rows: int, most: int | None = None) -> Tensor:
    """Which of the rows 0 … rows - 1 the filter may hold, ascending: all that it does, and more.

    Having found more than `most` it goes on no further; memory grows with what is found.
    """
    limit = rows if most is None else min(most, rows)
    found: Tensor = _implementation(filter.words.device).positives(filter, rows, limit)
    return found


def drawn_order(found: Tensor, salt: int) -> Tensor:
    """A random order of the rows: ascending by another hash of each, of which no two are alike."""
    return mix64(found, salt + 1).argsort()


def resolve(filter: Filter, found: Tensor, count: int) -> Tensor:
    """`count` of the positives `found`, by conflict sets; see `reference.py`. On the host."""
    host = found.cpu()
    module = implementation(__name__, host.device, ("reference", "numba"))
    picked: Tensor = module.resolve(filter, host, count)
    return picked.to(found.device)


def _implementation(device: torch.device) -> Any:
    return implementation(__name__, device, BUILT)
