"""Bloom filters over row numbers: which rows may have been put in.

The 64-bit hash of a row's *group*, row div 64, gives two 32-bit numbers, a and b, the second odd,
and p = ⌊((a + i·b) mod 2^32)·size/2^32⌋ for i = 0, 1, … This is double hashing (Kirsch and
Mitzenmacher, "Less hashing, same performance", ESA 2006), brought into range without a division
(Lemire, TOMACS 2019). The row's bits are in the words of these p, at (p + row) mod 64. So a word,
rotated by p, answers for 64 rows at once: a receiver, who must ask about every row, takes a 64th of
the hashes and look-ups. Words and rotations of a group are as good as independent of those of any
other, and rows of one group never share a bit: a row that was not put in is found with the same
probability as if it had been hashed alone, wherever the others lie. What changes is that such rows
come in bunches where the rows that were put in do.

Nothing is tabulated, where DeepReduce keeps a table of rows × hashes (section 4).
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.bloom import reference
from thinwire.kernels.bloom.filter import Filter, drawn_order

__all__ = ["MOST_BITS", "Filter", "drawn_order", "insert", "positives", "resolve"]

MOST_BITS = 2**31 - 1  # so that a 32-bit hash times the size is still an int64


def insert(rows: Tensor, size: int, hashes: int, salt: int) -> Filter:
    """The filter that holds int64 `rows`; its `size` is a multiple of 64."""
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
