"""A filter's bits, and how rows are found in them."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.rng import mix64


@dataclass(frozen=True, slots=True)
class Filter:
    """`size` bits in int64 words, and how to find a row's."""

    words: Tensor
    size: int
    hashes: int
    salt: int


def drawn_order(rows: Tensor, salt: int) -> Tensor:
    """A random order of the rows: ascending by another hash of each, of which no two are alike."""
    return mix64(rows, salt + 1).argsort()
