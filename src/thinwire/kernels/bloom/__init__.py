"""Bloom filters over row numbers: which rows may have been put in.

A row's 64-bit hash gives two 32-bit numbers, a and b, the second odd; its bits are at
⌊((a + i·b) mod 2^32)·size/2^32⌋ for i = 0, 1, … This is double hashing (Kirsch and Mitzenmacher,
"Less hashing, same performance", ESA 2006), brought into range without a division (Lemire, TOMACS
2019). Nothing is tabulated, where DeepReduce keeps a table of rows × hashes (section 4).
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.bloom import reference
from thinwire.kernels.bloom.filter import Filter, drawn_order

__all__ = ["MOST_BITS", "Filter", "drawn_order", "insert", "positives", "resolve"]

MOST_BITS = 2**31 - 1  # so that a 32-bit hash times the size is still an int64


def insert(rows: Tensor, size: int, hashes: int, salt: int) -> Filter:
    """The filter that holds int64 `rows`."""
    words = implementation(reference.insert, rows.device)(rows, size, hashes, salt)
    return Filter(words, size, hashes, salt)


def positives(filter: Filter, rows: int, most: int | None = None) -> Tensor:
    """Which of the rows 0 … rows - 1 the filter may hold, ascending: all that it does, and more.

    Having found more than `most` it goes on no further; memory grows with what is found.
    """
    limit = rows if most is None else min(most, rows)
    return implementation(reference.positives, filter.words.device)(filter, rows, limit)


def resolve(filter: Filter, rows: Tensor, count: int) -> Tensor:
    """`count` of the positive `rows` by conflict sets; see `reference.py`. On the host."""
    host = rows.cpu()
    picked = implementation(reference.resolve, host.device)(filter, host, count)
    return picked.to(rows.device)
