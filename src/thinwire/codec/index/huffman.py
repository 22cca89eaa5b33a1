"""The gaps between indices in Huffman's code: close to the entropy of any distribution of gaps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.index.ascending import AscendingIndex, as_words, from_gaps, to_gaps
from thinwire.codec.index.packed import last_word, spare_bits
from thinwire.codec.parts import as_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels import huffman
from thinwire.kernels.bitmap import words_for


@dataclass(frozen=True, slots=True)
class HuffmanIndex(AscendingIndex):
    """Delta keys with Huffman's code, as in SKCompress (DeepReduce, sections 2 and 3).

    The code fits the gaps that there are: clusters cost a bit or so an index where Rice, whose
    code fits the density, takes eight.

    Deviation: symbols are magnitudes, with the bits they leave open behind them (see
    `kernels.huffman`), so that the code stays small whatever the gaps. On a GPU, encoding waits
    for the frequencies.

    Part: 64-bit words of codes; the lengths of the symbols' codes, four bits each, the first in
    the low half of the first byte; then one byte, how many lengths there are.
    """

    id = 8
    name = "huffman"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        gaps = to_gaps(indices, rows)
        frequencies = huffman.histogram(gaps).tolist()
        code = huffman.Code.fitting(frequencies)
        words = huffman.encode(gaps, code, code.size(frequencies))
        tail = torch.tensor([*_halves(code.lengths), len(code.lengths)], dtype=torch.uint8)
        return torch.cat((as_bytes(words), tail.to(words.device)))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        known = int(body[-1]) if body.numel() else 0
        tail = 1 + (known + 1) // 2
        if body.numel() < tail:
            raise WireFormatError(f"{known} lengths take {tail} bytes, found {body.numel()}")
        lengths = [half for byte in body[-tail:-1].tolist() for half in (byte & 15, byte >> 4)]
        code = huffman.Code(tuple(lengths[:known]))
        words = as_words(body[:-tail])
        if not count:
            if known or words.numel():
                raise WireFormatError("no indices, but a code")
            return body.new_empty(0, dtype=torch.int64)
        if any(lengths[known:]) or not known or not lengths[known - 1] or not code.sound:
            raise WireFormatError(f"lengths {lengths} are no code")
        if 64 * words.numel() < count:
            raise WireFormatError(f"{count} gaps take a bit or more each")
        gaps, used = huffman.decode(words, count, code)
        if used < 0 or words_for(used) != words.numel() or spare_bits(int(last_word(words)), used):
            raise WireFormatError(f"{count} gaps must fill {words.numel()} words")
        return from_gaps(gaps, rows)


def _halves(lengths: tuple[int, ...]) -> list[int]:
    """Two lengths a byte."""
    even = lengths + (0,) * (len(lengths) % 2)
    return [low | high << 4 for low, high in zip(even[::2], even[1::2], strict=True)]
