"""LEB128 in torch: every number's first byte at once, then every second byte, and so on."""

import torch
from torch import Tensor


def encode(numbers: Tensor) -> Tensor:
    lengths = torch.ones_like(numbers)
    for byte in range(1, 9):
        lengths += numbers >= 1 << (7 * byte)
    ends = lengths.cumsum(0)
    out = numbers.new_empty(int(ends[-1]) if numbers.numel() else 0, dtype=torch.uint8)
    starts = ends - lengths
    for byte in range(int(lengths.max()) if numbers.numel() else 0):
        there = lengths > byte
        more = (lengths[there] > byte + 1).to(torch.int64) << 7
        seven = (numbers[there] >> (7 * byte)) & 0x7F
        out[starts[there] + byte] = (seven | more).to(torch.uint8)
    return out


def decode(data: Tensor) -> tuple[Tensor, bool]:
    ends = (data < 0x80).nonzero().view(-1)
    lengths = ends.diff(prepend=ends.new_full((1,), -1))
    whole = not data.numel() or int(data[-1]) < 0x80
    if not whole or bool((lengths > 9).any()):
        return ends[:0], False
    if bool(((data[ends] == 0) & (lengths > 1)).any()):
        return ends[:0], False
    owner = torch.arange(ends.numel(), device=data.device)
    owner = owner.repeat_interleave(lengths, output_size=data.numel())
    place = torch.arange(data.numel(), device=data.device) - (ends - lengths + 1)[owner]
    sevens = (data & 0x7F).to(torch.int64) << (7 * place)
    return torch.zeros_like(ends).index_add_(0, owner, sevens), True
