"""Placing in torch."""

import torch
from torch import Tensor


def place_rows(indices: Tensor, values: Tensor, out: Tensor, divisor: int) -> Tensor:
    there = indices < out.numel()
    out[indices[there]] = (values[there] / divisor).to(out.dtype)
    return values[:, :1].isnan().any().to(torch.int64)
