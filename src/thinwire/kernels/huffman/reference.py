"""Huffman's code in torch, sequential nowhere: every number at once, every bit at once."""

import torch
from torch import Tensor

from thinwire.kernels.huffman.code import BASES, LONGEST, SYMBOLS, WIDTHS, Code


def _symbols(numbers: Tensor) -> Tensor:
    bases = torch.from_numpy(BASES).to(numbers.device)
    return torch.searchsorted(bases, numbers, right=True) - 1


def histogram(numbers: Tensor) -> Tensor:
    return torch.bincount(_symbols(numbers), minlength=SYMBOLS)


def encode(numbers: Tensor, code: Code, size: int) -> Tensor:
    device = numbers.device
    symbols = _symbols(numbers)
    lengths = torch.from_numpy(code.all_lengths).to(device)[symbols]
    widths = torch.from_numpy(WIDTHS).to(device)[symbols]
    behind = numbers - torch.from_numpy(BASES).to(device)[symbols]
    starts = (lengths + widths).cumsum(0) - lengths - widths
    words = numbers.new_zeros((size + 63) // 64 + 2)
    _put(words, starts, torch.from_numpy(code.codes).to(device)[symbols])
    _put(words, starts + lengths, behind)
    return words[:-2]


def decode(words: Tensor, count: int, code: Code) -> tuple[Tensor, int]:
    """Every bit could be where a number begins. If one does, it is known where the next one begins;
    following that map 1, 2, 4, … steps at a time finds the beginnings of all numbers from bit 0.
    """
    device, end = words.device, 64 * words.numel()
    padded = torch.cat((words, words.new_zeros(2)))
    bits = torch.arange(end + 1, device=device)
    entries = torch.from_numpy(code.table).to(device)[_peek(padded, bits) & ((1 << LONGEST) - 1)]
    width_of = torch.from_numpy(WIDTHS).to(device)
    taken = (entries & 15) + width_of[entries.clamp(min=0) >> 4]
    lost = end + 1  # where all ways lead that are none
    following = torch.where((entries < 0) | (bits + taken > end), lost, bits + taken)
    following = torch.cat((following, following.new_full((1,), lost)))

    starts = bits.new_zeros(1)
    while starts.numel() < count + 1:
        starts = torch.cat((starts, following[starts]))
        following = following[following]
    if int(starts[count]) == lost:
        return words[:0], -1
    used, starts = int(starts[count]), starts[:count]
    symbols, lengths = entries[starts] >> 4, entries[starts] & 15
    behind = _peek(padded, starts + lengths) & ((1 << width_of[symbols]) - 1)
    return torch.from_numpy(BASES).to(device)[symbols] + behind, used


def _put(words: Tensor, starts: Tensor, fields: Tensor) -> None:
    """Set the bits of each field from its start on; all of them are clear."""
    word, shift = starts >> 6, starts & 63
    words.index_add_(0, word, fields << shift)
    words.index_add_(0, word + 1, (fields >> 1) >> (63 - shift))


def _peek(words: Tensor, starts: Tensor) -> Tensor:
    """The 64 bits from each start on; its word and the one after must exist."""
    word, shift = starts >> 6, starts & 63
    first = (words[word] >> shift) & (~((-2) << (63 - shift)))  # a logical shift
    return first | ((words[word + 1] << 1) << (63 - shift))
