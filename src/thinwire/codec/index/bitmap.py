"""One bit per row, whatever the density."""

from dataclasses import dataclass

from torch import Tensor

from thinwire.codec.index.ascending import AscendingIndex, as_words, check_on_cpu, refuse_rows
from thinwire.codec.index.packed import fetch, last_word, spare_bits
from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.bitmap import positions, set_bits, words_for


@dataclass(frozen=True, slots=True)
class BitmapIndex(AscendingIndex):
    """The bit string of DeepReduce, section 3: bit i says whether index i is among them.

    rows/8 bytes: smaller than 32-bit indices from a density of 1/32 on. More than 2^32 rows are
    refused.

    Part: the bits in 64-bit words, row 0 in the lowest bit of the first byte.
    """

    id = 5
    name = "bitmap"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        refuse_rows(rows, RecipeError)
        check_on_cpu(indices, rows)
        return as_bytes(set_bits(indices, rows))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        refuse_rows(rows, WireFormatError)
        expect_bytes(body, 8 * words_for(rows), f"a bit for each of {rows} rows")
        words = as_words(body)
        indices, bits = positions(words, count)
        found, last = fetch(bits, last_word(words))
        if spare_bits(last, rows):
            raise WireFormatError(f"the bits after row {rows - 1} must be zero")
        if found != count:
            raise WireFormatError(f"{count} bits must be set, found {found}")
        return indices
