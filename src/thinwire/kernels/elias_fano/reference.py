"""The split in torch: every number at once."""

import torch
from torch import Tensor

from thinwire.kernels.bitmap import reference as bitmap
from thinwire.kernels.bitmap import words_for


def _places(count: int, low_bits: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each field the word where it begins, and the bit in it."""
    starts = torch.arange(count, device=device) * low_bits
    return starts >> 6, starts & 63


def split(numbers: Tensor, low_bits: int, high_size: int) -> Tensor:
    count = numbers.numel()
    word, shift = _places(count, low_bits, numbers.device)
    fields = numbers & ((1 << low_bits) - 1)
    low = numbers.new_zeros(words_for(count * low_bits) + 2)
    # Fields do not overlap: to add them is to set their bits. What passes the word's end goes on
    # in the next; in two shifts, since one of 64 bits is none.
    low.index_add_(0, word, fields << shift)
    low.index_add_(0, word + 1, (fields >> 1) >> (63 - shift))
    order = torch.arange(count, device=numbers.device)
    high = bitmap.set_bits((numbers >> low_bits) + order, high_size)
    return torch.cat((low[:-2], high))


def join(words: Tensor, count: int, low_bits: int) -> tuple[Tensor, Tensor]:
    low_end = words_for(count * low_bits)
    word, shift = _places(count, low_bits, words.device)
    low = torch.cat((words[:low_end], words.new_zeros(2)))
    keep = (1 << low_bits) - 1
    kept = 64 - shift  # bits of the field's first word that are its own or later fields'
    first = torch.where(shift == 0, low[word], (low[word] >> shift) & ((1 << kept % 64) - 1))
    fields = (first | ((low[word + 1] << 1) << (63 - shift))) & keep
    ones, total = bitmap.positions(words[low_end:], count)
    return ((ones - torch.arange(count, device=words.device)) << low_bits) | fields, total
