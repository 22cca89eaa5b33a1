"""Count sketches in torch, on any device."""

import torch
from torch import Tensor

from thinwire.rng import hash_to_range, mix64

PRIME = 2**31 - 1
DEGREES = 4  # coefficients of a polynomial: as many outputs are independent of each other


def project(
    indices: Tensor, values: Tensor, rows: int, buckets: int, seed: int, four_wise: bool = False
) -> Tensor:
    places = four_wise_places if four_wise else _places
    table = values.new_zeros(rows, buckets)
    for row in range(rows):
        at, negative = places(indices, buckets, seed + row)
        _add_in_order(table[row], at, torch.where(negative, -values, values))
    return table


def recover(table: Tensor, numel: int, seed: int, decode: str, four_wise: bool = False) -> Tensor:
    places = four_wise_places if four_wise else _places
    rows, buckets = table.shape
    indices = torch.arange(numel, device=table.device)
    estimates = table.new_empty(rows, numel)
    for row in range(rows):
        at, negative = places(indices, buckets, seed + row)
        estimates[row] = torch.where(negative, -table[row][at], table[row][at])
    if decode == "median":
        return estimates.sort(dim=0, stable=True).values[rows // 2]
    total = estimates[0]
    for other in estimates[1:]:
        total += other
    return total.mul_(1 / rows)


def _places(indices: Tensor, buckets: int, seed: int) -> tuple[Tensor, Tensor]:
    """The bucket of each index, and whether its sign is -1."""
    return hash_to_range(indices, buckets, seed), (mix64(indices, seed) & 1).bool()


def four_wise_places(indices: Tensor, buckets: int, seed: int) -> tuple[Tensor, Tensor]:
    """As `_places`, by polynomials whose values at any four indices are independent."""
    at, sign = (_polynomial(indices, key) for key in coefficients(seed))
    return at * buckets // PRIME, (sign & 1).bool()


def coefficients(seed: int) -> list[list[int]]:
    """Of the two polynomials, the highest degree first."""
    drawn: list[int] = (mix64(torch.arange(2 * DEGREES), seed) % PRIME).tolist()
    return [drawn[:DEGREES], drawn[DEGREES:]]


def _polynomial(x: Tensor, key: list[int]) -> Tensor:
    value = torch.full_like(x, key[0])
    for coefficient in key[1:]:
        value = (value * x + coefficient) % PRIME
    return value


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
