"""Piecewise polynomials in torch, all pieces at once: on a GPU no step waits for the host."""

from collections.abc import Iterator

import torch
from torch import Tensor

_ROWS = 8  # pieces that are summed side by side


def split(curve: Tensor, pieces: int, least: int) -> Tensor:
    count, device = curve.numel(), curve.device
    first = torch.full((pieces,), count, device=device)
    end, at = first.clone(), first.clone()
    far = torch.zeros(pieces, dtype=torch.float64, device=device)
    first[:1].zero_()  # by `first[0] = 0` the host would wait
    fresh = torch.zeros(1, dtype=torch.int64, device=device)
    for piece in range(1, pieces):
        far[fresh], at[fresh] = _farthest(curve, first[fresh], end[fresh], least)
        top = far.max()
        cuts = top > 0
        # Of several that are as far the first, which `argmax` does not promise.
        chosen = torch.where(far == top, first, count + 1).argmin().view(1)
        fresh = torch.cat((chosen, chosen.new_full((1,), piece)))
        first[piece] = torch.where(cuts, at[chosen], count)[0]
        end[fresh] = torch.cat((torch.where(cuts, at[chosen], end[chosen]), end[chosen]))
    starts = torch.cat((first.sort().values, first.new_full((1,), count)))
    return starts.diff()


def _farthest(curve: Tensor, first: Tensor, end: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """How far the curve is from the chord of each piece, and where first; 0 if it stays whole."""
    places = torch.arange(curve.numel(), device=curve.device)
    head, last = first.clamp(max=curve.numel() - 1), end - 1
    rise = curve[last] - curve[head]
    slope = rise / (last - first).clamp(min=1).double()
    local = (places - first[:, None]).double()
    distance = (curve - (curve[head][:, None] + slope[:, None] * local)).abs()
    inside = (places >= first[:, None]) & (places < end[:, None])
    distance = torch.where(inside, distance, -1)
    top = distance.amax(1)
    at = torch.where(distance == top[:, None], places, curve.numel()).amin(1)
    may = (least <= at - first) & (least <= end - at)
    return torch.where(may, top, 0), at


def project(curve: Tensor, lengths: Tensor, degree: int) -> Tensor:
    sums = torch.stack(
        [_sums(curve * polynomial, lengths) for polynomial in _basis(lengths, curve, degree)], 1
    )
    norm = lengths.double()
    b = _recurrence(lengths, degree)
    norms = torch.stack([norm, *(norm := norm * b[:, k] for k in range(degree))], 1)
    return torch.where(_exists(lengths, degree), sums / norms, 0)


def evaluate(coefficients: Tensor, lengths: Tensor, count: int) -> Tensor:
    total = coefficients.new_zeros(count)
    degree = coefficients.shape[1] - 1
    rows = torch.where(_exists(lengths, degree), coefficients, 0)
    piece = _piece_of(lengths, count)
    for k, polynomial in enumerate(_basis(lengths, total, degree)):
        total = total + rows[:, k][piece] * polynomial
    return total


def _piece_of(lengths: Tensor, count: int) -> Tensor:
    """Of each point the piece that it is in."""
    pieces = torch.arange(lengths.numel(), device=lengths.device)
    return pieces.repeat_interleave(lengths, output_size=count)


def _exists(lengths: Tensor, degree: int) -> Tensor:
    """Which polynomials there are: as many as a piece has points."""
    return torch.arange(degree + 1, device=lengths.device) < lengths[:, None]


def _recurrence(lengths: Tensor, degree: int) -> Tensor:
    """The b_k from b_1 on, of each piece; 0 for polynomials that there are not."""
    square = torch.arange(1, degree + 1, device=lengths.device).double() ** 2
    points = lengths.double()[:, None]
    span = (points - 1) * (points - 1) * (4 * square - 1)
    b = square * (points * points - square) / span
    return torch.where(_exists(lengths, degree)[:, 1:], b, 0)


def _basis(lengths: Tensor, like: Tensor, degree: int) -> Iterator[Tensor]:
    """Each polynomial at all points, one piece after the other."""
    piece = _piece_of(lengths, like.numel())
    starts = lengths.cumsum(0) - lengths
    local = torch.arange(like.numel(), device=like.device) - starts[piece]
    last = (lengths - 1)[piece]
    # By a tensor, since by a plain number CUDA divides with another rounding than the CPU.
    t = (2 * local - last).double() / last.clamp(min=1).double()
    b = _recurrence(lengths, degree)
    before, now = torch.ones_like(t), t
    yield before
    for k in range(degree):
        yield now
        before, now = now, t * now - b[:, k][piece] * before


def _sums(weighted: Tensor, lengths: Tensor) -> Tensor:
    """The sum over each piece, on the CPU from its first point to its last."""
    if weighted.device.type != "cpu":
        return sums_by_mask(weighted, lengths)
    parts = weighted.split(lengths.tolist())
    return torch.stack([p.cumsum(0)[-1] if p.numel() else p.new_zeros(()) for p in parts])


def sums_by_mask(weighted: Tensor, lengths: Tensor) -> Tensor:
    """The same without asking how long pieces are: always the same bits, unlike a GPU's cumsum."""
    places = torch.arange(weighted.numel(), device=weighted.device)
    ends = lengths.cumsum(0)
    sums = []
    for some, before in zip(ends.split(_ROWS), (ends - lengths).split(_ROWS), strict=True):
        inside = (places >= before[:, None]) & (places < some[:, None])
        sums.append(torch.where(inside, weighted, 0).sum(1))
    return torch.cat(sums)
