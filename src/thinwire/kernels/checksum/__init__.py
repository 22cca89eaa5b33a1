"""A 64-bit checksum that no damage confined to one word can escape; see `reference.py`."""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.checksum import reference
from thinwire.rng import Seed


def checksum(words: Tensor, first: int = 0) -> Tensor:
    """The checksum of int64 `words` at positions `first`, `first + 1`, …, as a 0-D int64 tensor.

    Checksums of adjoining ranges add up to the checksum of the whole (int64 sums wrap).
    """
    return implementation(reference.checksum, words.device)(words, first)


def checksum_rows(words: Tensor, first: Seed = 0) -> Tensor:
    """The checksum of each row of a matrix of words, whose rows may lie apart.

    `first` may lie on their device, so that nobody waits for it.
    """
    return implementation(reference.checksum_rows, words.device)(words, first)
