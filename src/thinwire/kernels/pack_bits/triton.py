"""Bit packing on CUDA: whoever writes a word looks up the codes that reach into it.

No program writes what another writes, and nothing is sized by the width: one kernel for all.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


@triton.jit
def packed_word(codes, word, count, bits):
    """Word number `word` of `count` integers' low `bits` bits (at most 62) side by side, as uint64.

    `word` is an int64 tensor.
    """
    start = word * 64
    first = start // bits
    keep = (tl.full((), 1, tl.int64) << bits) - 1
    packed = start.to(tl.uint64) * 0
    for turn in range(63 // bits + 2):
        i = first + turn
        shift = i * bits - start  # negative where a code began in the word before
        here = (i < count) & (shift < 64)
        code = tl.load(codes + i, mask=here, other=0).to(tl.int64) & keep
        field = code.to(tl.uint64)
        packed |= tl.where(
            shift < 0,
            field >> tl.maximum(0 - shift, 0).to(tl.uint64),
            field << (tl.maximum(shift, 0) & 63).to(tl.uint64),
        )
    return packed


@triton.jit
def field_of_bytes(packed, size, i, bits):
    """Code number `i` (int64) of those in `size` bytes, of at most 16 bits, as int32."""
    start = i * bits
    at = start >> 3
    window = tl.load(packed + at, mask=at < size, other=0).to(tl.int32)
    for byte in tl.static_range(1, 3):
        more = tl.load(packed + at + byte, mask=at + byte < size, other=0).to(tl.int32)
        window |= more << (8 * byte)
    return (window >> (start & 7).to(tl.int32)) & ((tl.full((), 1, tl.int32) << bits) - 1)


@triton.jit(do_not_specialize=["count", "bits", "size"])
def _pack(codes, words, count, bits, size, BLOCK: tl.constexpr):
    word = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    packed = packed_word(codes, word, count, bits)
    tl.store(words + word, packed.to(tl.int64, bitcast=True), mask=word < size)


@triton.jit(do_not_specialize=["count", "bits", "size"])
def _unpack(packed, codes, count, bits, size, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(codes + i, field_of_bytes(packed, size, i, bits), mask=i < count)


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    count = codes.numel()
    words = torch.empty((count * bits + 63) // 64, dtype=torch.int64, device=codes.device)
    if count:
        grid = (triton.cdiv(words.numel(), BLOCK),)
        _pack[grid](codes, words, count, bits, words.numel(), BLOCK)
    return words.view(torch.uint8)[: (count * bits + 7) // 8]


def unpack_bits(packed: Tensor, count: int, bits: int) -> Tensor:
    codes = torch.empty(count, dtype=torch.int32, device=packed.device)
    if count:
        grid = (triton.cdiv(count, BLOCK),)
        _unpack[grid](packed, codes, count, bits, packed.numel(), BLOCK)
    return codes
