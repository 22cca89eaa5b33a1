"""Sums of ordered sparse vectors in torch: join, sort, add neighbours."""

import torch

from thinwire.types import Sparse


def merge(a: Sparse, b: Sparse) -> Sparse:
    indices, order = torch.cat((a.indices, b.indices)).sort(stable=True)
    values = torch.cat((a.values, b.values))[order]
    repeats = indices[1:] == indices[:-1]  # at most two in a row: one of `a`, then one of `b`
    first = torch.cat((repeats.new_ones(1), ~repeats))
    place = first.cumsum(0) - 1
    total = values[first]
    doubled = place[~first]
    total[doubled] = total[doubled] + values[~first]
    return Sparse(indices[first], total, a.numel)


def split_top(s: Sparse, k: int) -> tuple[Sparse, Sparse]:
    magnitudes = s.values.abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    order = magnitudes.sort(descending=True, stable=True).indices
    keep = torch.zeros_like(s.indices, dtype=torch.bool)
    keep[order[:k]] = True
    return (
        Sparse(s.indices[keep], s.values[keep], s.numel),
        Sparse(s.indices[~keep], s.values[~keep], s.numel),
    )
