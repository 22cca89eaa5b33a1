"""The gaps between indices in Rice's code: within 1 % of the entropy."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.index.ascending import AscendingIndex, as_words, check_order
from thinwire.codec.index.packed import check_vector, fetch, last_word, spare_bits
from thinwire.codec.parts import as_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.elias_fano import join, low_words, split
from thinwire.kernels.rice import from_indices, to_indices

_GOLDEN = (math.sqrt(5) - 1) / 2
_MOST_LOW_BITS = 62


@dataclass(frozen=True, slots=True)
class RiceIndex(AscendingIndex):
    """Golomb (1966) and Rice (1971): a gap is q·2^b + r, with q in unary and r in b bits.

    Not in DeepReduce, whose Bloom filter takes 14.4 bits per index at 1 % and FPR 0.001 and may
    err: uniform indices take 8.11 bits here, where the entropy is 8.08. b fits the density
    (Kiely, "Selecting the Golomb parameter in Rice coding", IPN Progress Report 42-159, 2004).
    Whatever the distribution, the quotients add up to at most rows/2^b, fewer than 2.7 a gap.

    Quotients and remainders lie apart (see `kernels.rice`) so that both are read a word at a time.
    On a GPU, encoding waits once, for the number of words.

    Part: 64-bit words of remainders, 64-bit words of quotients, then b in one byte. No indices, no
    words.
    """

    id = 3
    name = "rice"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        low_bits = best_low_bits(indices.numel(), rows)
        numbers, ascending = from_indices(indices, low_bits)
        size = 0
        if indices.numel():
            sound, last, top = fetch(ascending, indices[-1], numbers[-1])
            check_order(bool(sound) and last < rows, rows)
            size = (top >> low_bits) + indices.numel()
        words = split(numbers, low_bits, size)
        return torch.cat((as_bytes(words), words.new_full((1,), low_bits, dtype=torch.uint8)))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        tail = bytes(body[-9:].tolist())  # the vector's last word, and b
        low_bits = tail[-1] if tail else -1
        if not 0 <= low_bits <= _MOST_LOW_BITS:
            raise WireFormatError(f"low bits must be in 0 … {_MOST_LOW_BITS}, found {low_bits}")
        words = as_words(body[:-1])
        start = low_words(count, low_bits)
        last = int.from_bytes(tail[:-1], "little")
        check_vector(last, words.numel() - start, count, rows >> low_bits)
        numbers, bits = join(words, count, low_bits)
        indices, ascending = to_indices(numbers, low_bits, rows)
        found, sound, low_end = fetch(bits, ascending, last_word(words[:start]))
        if spare_bits(low_end, count * low_bits):
            raise WireFormatError("the bits after the last remainder must be zero")
        if found != count:
            raise WireFormatError(f"the vector must hold {count} numbers, found {found}")
        if not sound:
            raise WireFormatError(f"gaps must lead to indices in [0, {rows})")
        return indices


def best_low_bits(count: int, rows: int) -> int:
    """The b for which gaps take the fewest bits on average, if indices are uniform."""
    if not 0 < count < rows:
        return 0
    best = math.log(_GOLDEN) / math.log1p(-count / rows)
    return min(max(0, 1 + math.floor(math.log2(best))), _MOST_LOW_BITS)
