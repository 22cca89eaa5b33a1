"""Raw indices in torch."""

import torch
from torch import Tensor

from thinwire.types import PADDING


def widen(narrow: Tensor, rows: int, ordered: bool) -> tuple[Tensor, Tensor]:
    indices = narrow.to(torch.int64)
    if narrow.dtype == torch.int16:
        indices &= 0xFFFF
    padding = indices == (0xFFFF if narrow.dtype == torch.int16 else -1)
    if ordered and rows == 2**16:
        padding[:, 1:] &= padding[:, :-1].clone()
        padding[:, :1] = False
    sound = (((indices >= 0) & (indices < rows)) | padding).all()
    if ordered:
        sound &= ((indices[:, 1:] > indices[:, :-1]) | padding[:, 1:]).all()
    return indices.masked_fill(padding, PADDING), sound
