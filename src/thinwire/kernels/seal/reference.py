"""Sealing in torch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.kernels.checksum import checksum, checksum_rows
from thinwire.kernels.seal.form import ADDRESS, HEADER_WORDS, SUM


def seal(wires: Tensor, front: Tensor, address: Tensor, gaps: Sequence[tuple[int, int]]) -> None:
    for start, end in gaps:
        wires[:, start:end] = 0
    words = wires.view(torch.int64)
    words[:, :HEADER_WORDS] = _due(words, front, address)


def is_sealed(wires: Tensor, front: Tensor, address: Tensor) -> Tensor:
    words = wires.view(torch.int64)
    return (words[:, :HEADER_WORDS] == _due(words, front, address)).all()


def _due(words: Tensor, front: Tensor, address: Tensor) -> Tensor:
    """The headers that belong before what follows in each row."""
    headers = front.repeat(len(words), 1)
    headers[:, ADDRESS] = address
    headers[:, SUM] += checksum_rows(words[:, HEADER_WORDS:], first=HEADER_WORDS)
    headers[:, SUM] += checksum(address.view(1), first=ADDRESS)
    return headers
