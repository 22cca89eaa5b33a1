"""The canonical code: from frequencies to lengths, and from lengths to bits."""

import heapq
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LONGEST = 12  # bits of a code, so that the table that decodes it stays in the nearest cache
SYMBOLS = 248

WIDTHS = np.array([max(0, s // 4 - 1) for s in range(SYMBOLS)], dtype=np.int64)
"""How many bits follow each symbol."""

BASES = np.array(
    [s if s < 4 else (4 | s % 4) << (s // 4 - 1) for s in range(SYMBOLS)], dtype=np.int64
)
"""The smallest number of each symbol."""


@dataclass(frozen=True)
class Code:
    """A canonical prefix code (Schwartz and Kallick, 1964), given by its lengths; 0 is no code.

    Codes are counted up in order of length, then of symbol.
    """

    lengths: tuple[int, ...]

    @classmethod
    def fitting(cls, frequencies: list[int]) -> "Code":
        """Huffman's lengths (1952), for frequencies flattened until none is above `LONGEST`.

        Halving frequencies is what bzip2 does; package-merge would save next to nothing more.
        """
        lengths = _huffman(frequencies)
        while max(lengths, default=0) > LONGEST:
            frequencies = [(f + 1) // 2 for f in frequencies]
            lengths = _huffman(frequencies)
        while lengths and not lengths[-1]:
            lengths.pop()
        return cls(tuple(lengths))

    @property
    def sound(self) -> bool:
        """Whether every string of bits is read in one way. One symbol alone has the code 0."""
        if len(self.lengths) > SYMBOLS or max(self.lengths, default=0) > LONGEST:
            return False
        taken = sum(1 << (LONGEST - length) for length in self.lengths if length)
        alone = sum(length > 0 for length in self.lengths) == 1
        return taken == (1 << (LONGEST - 1) if alone else 1 << LONGEST)

    def size(self, frequencies: list[int]) -> int:
        """How many bits so many of each symbol take, with the bits that follow them."""
        each = zip(frequencies, self.lengths, WIDTHS.tolist(), strict=False)
        return sum(f * (length + width) for f, length, width in each)

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """Each symbol's code with its first bit lowest."""
        codes = np.zeros(SYMBOLS, dtype=np.int64)
        following, length_before = 0, 0
        for length, symbol in sorted((n, s) for s, n in enumerate(self.lengths) if n):
            following <<= length - length_before
            codes[symbol] = int(f"{following:0{length}b}"[::-1], 2)
            following, length_before = following + 1, length
        return codes

    @cached_property
    def all_lengths(self) -> NDArray[np.int64]:
        """The lengths of all symbols there are."""
        return np.array(self.lengths + (0,) * (SYMBOLS - len(self.lengths)), dtype=np.int64)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """For the next `LONGEST` bits: symbol·16 + length, or -1 where no code begins so."""
        table = np.full(1 << LONGEST, -1, dtype=np.int64)
        for symbol, length in enumerate(self.lengths):
            if length:
                table[self.codes[symbol] :: 1 << length] = symbol * 16 + length
        return table


def _huffman(frequencies: list[int]) -> list[int]:
    """The optimal lengths; ties fall to the earlier symbol or the earlier node."""
    lengths = [0] * len(frequencies)
    heap: list[tuple[int, int, tuple[int, ...]]] = [
        (f, s, (s,)) for s, f in enumerate(frequencies) if f
    ]
    heapq.heapify(heap)
    if len(heap) == 1:
        lengths[heap[0][1]] = 1
    order = len(frequencies)
    while len(heap) > 1:
        (f, _, left), (g, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in left + right:
            lengths[symbol] += 1
        heapq.heappush(heap, (f + g, order, left + right))
        order += 1
    return lengths
