"""Piecewise polynomials in torch, a loop over pieces."""

from collections.abc import Iterator

import torch
from torch import Tensor


def _farthest(curve: Tensor, first: int, last: int) -> tuple[float, int]:
    """How far the curve is from the chord over points first … last, and where first."""
    places = torch.arange(last - first + 1, dtype=torch.float64, device=curve.device)
    slope = (curve[last] - curve[first]) / (last - first)
    distance = (curve[first : last + 1] - (curve[first] + slope * places)).abs()
    top = distance.max()
    return float(top), first + int((distance == top).nonzero()[0])


def split(curve: Tensor, pieces: int, least: int) -> Tensor:
    count = curve.numel()
    starts, known = [0], {}  # the farthest point of each piece that can be cut
    while len(starts) < pieces:
        best, cut = -1.0, 0
        for first, end in zip(starts, [*starts[1:], count], strict=True):
            if end - first < 2 * least:
                continue
            if (first, end) not in known:
                known[first, end] = _farthest(curve, first, end - 1)
            far, at = known[first, end]
            if far > best and least <= at - first and least <= end - at:
                best, cut = far, at
        if best <= 0:
            break
        starts = sorted([*starts, cut])
    edges = torch.tensor([*starts, count], dtype=torch.int64, device=curve.device)
    return edges[1:] - edges[:-1]


def _b(k: int, points: int) -> float:
    """The recurrence's b_k."""
    return float(k * k) * (float(points) ** 2 - k * k) / ((points - 1.0) ** 2 * (4 * k * k - 1))


def _basis(points: int, degree: int, device: torch.device) -> Iterator[tuple[Tensor, float]]:
    """Each polynomial at the points, and its squared norm."""
    steps = torch.arange(points, dtype=torch.float64, device=device)
    # A tensor, since by a plain number CUDA divides with another rounding than the CPU.
    span = torch.full((), max(1, points - 1), dtype=torch.float64, device=device)
    t = (2 * steps - (points - 1)) / span
    before, now, norm = torch.zeros_like(t), torch.ones_like(t), float(points)
    yield now, norm
    for k in range(1, min(degree, points - 1) + 1):
        back = _b(k - 1, points) if k > 1 else 0.0
        before, now, norm = now, t * now - back * before, norm * _b(k, points)
        yield now, norm


def project(curve: Tensor, lengths: Tensor, degree: int) -> Tensor:
    out = curve.new_zeros((lengths.numel(), degree + 1))
    for row, piece in zip(out, curve.split(lengths.tolist()), strict=True):
        for k, (polynomial, norm) in enumerate(_basis(piece.numel(), degree, curve.device)):
            row[k] = (piece * polynomial).cumsum(0)[-1] / norm  # cumsum adds in order
    return out


def evaluate(coefficients: Tensor, lengths: Tensor) -> Tensor:
    pieces = []
    for row, points in zip(coefficients, lengths.tolist(), strict=True):
        total = row.new_zeros(points)
        for k, (polynomial, _) in enumerate(_basis(points, row.numel() - 1, row.device)):
            total = total + row[k] * polynomial
        pieces.append(total)
    return torch.cat(pieces) if pieces else coefficients.new_zeros(0)
