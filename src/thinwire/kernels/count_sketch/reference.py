"""Count sketches in torch, on any device."""

import torch
from torch import Tensor

from thinwire.rng import hash_to_range, mix64


def project(indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int) -> Tensor:
    table = values.new_zeros(rows, buckets)
    for row in range(rows):
        signed = torch.where(_negative(indices, seed + row), -values, values)
        _add_in_order(table[row], hash_to_range(indices, buckets, seed + row), signed)
    return table


def recover(table: Tensor, numel: int, seed: int, decode: str) -> Tensor:
    rows, buckets = table.shape
    indices = torch.arange(numel, device=table.device)
    estimates = table.new_empty(rows, numel)
    for row in range(rows):
        value = table[row][hash_to_range(indices, buckets, seed + row)]
        estimates[row] = torch.where(_negative(indices, seed + row), -value, value)
    if decode == "median":
        return estimates.sort(dim=0, stable=True).values[rows // 2]
    total = estimates[0]
    for other in estimates[1:]:
        total += other
    return total.mul_(1 / rows)


def _negative(indices: Tensor, seed: int) -> Tensor:
    """Which indices have the sign -1."""
    return (mix64(indices, seed) & 1).bool()


def _add_in_order(table: Tensor, bucket: Tensor, values: Tensor) -> None:
    """table[bucket] += values, one after the other.

    CUDA's own scatter would add in any order. Here every bucket takes its first value, then every
    bucket its second, and so on: no bucket is written twice at once.
    """
    bucket, order = torch.sort(bucket, stable=True)
    values = values[order]
    turn = torch.arange(bucket.numel(), device=bucket.device) - torch.searchsorted(bucket, bucket)
    for now in range(int(turn.max()) + 1 if turn.numel() else 0):
        at = (turn == now).nonzero().flatten()
        table[bucket[at]] += values[at]
