"""The split on CUDA: one launch writes both halves, two read them (see `bitmap.triton`)."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.bitmap import words_for
from thinwire.kernels.bitmap.triton import listed, set_bit, zeroed
from thinwire.kernels.pack_bits.triton import packed_word

BLOCK = 256


@triton.jit(do_not_specialize=["count", "low_bits", "low_end", "high_size"])
def _split(numbers, words, count, low_bits, low_end, high, high_size, BLOCK: tl.constexpr):
    """The first programs fill the words of low bits, the others set bits of the vector."""
    low_programs = tl.cdiv(low_end, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    if program < low_programs:
        word = program * BLOCK + tl.arange(0, BLOCK)
        packed = packed_word(numbers, word, count, low_bits)
        tl.store(words + word, packed.to(tl.int64, bitcast=True), mask=word < low_end)
    else:
        i = (program - low_programs) * BLOCK + tl.arange(0, BLOCK)
        number = tl.load(numbers + i, mask=i < count, other=0)
        set_bit(high, (number >> low_bits) + i, high_size, i < count)


def split(numbers: Tensor, low_bits: int, high_size: int) -> Tensor:
    count = numbers.numel()
    low_end = words_for(count * low_bits)
    words = zeroed(64 * low_end + high_size, numbers.device)
    if count:
        grid = (triton.cdiv(low_end, BLOCK) + triton.cdiv(count, BLOCK),)
        high = words[low_end:].view(torch.int32)
        _split[grid](numbers, words, count, low_bits, low_end, high, high_size, BLOCK)
    return words


def join(words: Tensor, count: int, low_bits: int) -> tuple[Tensor, Tensor]:
    """Without low bits the fields are empty, wherever they are looked for."""
    return listed(words[words_for(count * low_bits) :], count, words, low_bits)
