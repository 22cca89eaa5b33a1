"""Low bits as they are, high bits in unary: a size that depends on nothing but the counts."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.codec.index.ascending import AscendingIndex, as_words, check_on_cpu
from thinwire.codec.index.packed import fetch, last_word, spare_bits
from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.bitmap import words_for
from thinwire.kernels.elias_fano import join, low_words, split


@dataclass(frozen=True, slots=True)
class EliasFanoIndex(AscendingIndex):
    """Elias (1974) and Fano (1971): b low bits per index, and at most three bits for the rest.

    With b = ⌊log2(rows/count)⌋ it takes b + 1 + rows/(count·2^b) bits per index: 8.56 at 1 %, half
    a bit above the entropy, for any distribution. The size is known without a look at the
    indices, so that a GPU's need not be waited for; and nothing in it is sequential.

    Part: 64-bit words of low bits, then 64-bit words of the vector (see `kernels.elias_fano`).
    """

    id = 4
    name = "elias_fano"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        check_on_cpu(indices, rows)
        low_bits, vector_bits = _form(indices.numel(), rows)
        return as_bytes(split(indices, low_bits, vector_bits))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        low_bits, vector_bits = _form(count, rows)
        start = low_words(count, low_bits)
        expect_bytes(body, 8 * (start + words_for(vector_bits)), f"{count} indices below {rows}")
        words = as_words(body)
        indices, bits = join(words, count, low_bits)
        ascending = (indices[1:] > indices[:-1]).all()
        found, sound, largest, *last = fetch(
            bits, ascending, last_word(indices), last_word(words[:start]), last_word(words)
        )
        if spare_bits(last[0], count * low_bits) or spare_bits(last[1], vector_bits):
            raise WireFormatError("the bits after the last index must be zero")
        if found != count:
            raise WireFormatError(f"the vector must hold {count} numbers")
        if count and (largest >= rows or not sound):
            raise WireFormatError(f"indices must ascend and be in [0, {rows})")
        return indices


def _form(count: int, rows: int) -> tuple[int, int]:
    """The number of low bits, and of bits in the vector."""
    if not count:
        return 0, 0
    low_bits = (rows // count).bit_length() - 1
    return low_bits, count + ((rows - 1) >> low_bits)
