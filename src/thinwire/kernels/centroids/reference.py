"""Bins and their means in torch: one group a row."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.kernels._numeric import row_sums


def to_centroids(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    (size, count), groups = values.shape, -(-values.shape[1] // group)
    if not values.numel():
        return values.new_zeros(size, groups, 4), values.int()
    rows = in_groups(values, group)
    largest, mean_square = spread_of(rows, count, group)
    by = scale_by(largest)
    shares = rows.double() / by[:, None]
    outer = (shares.square() >= mean_square[:, None]).int()
    codes = torch.where(rows < 0, 1 - outer, 2 + outer)
    there = there_in(rows, count, group)
    means = []
    for code in range(4):
        mine = (codes == code) & there
        total = row_sums(torch.where(mine, shares, 0))
        means.append((total / mine.sum(1).clamp(min=1)).clamp(-1, 1) * by)
    # Zero is added so that it has one sign. NaN comes last: a GPU's casts make others of it.
    centroids = torch.stack(means, 1).to(values.dtype).add_(0.0)
    centroids = torch.where(largest.isfinite()[:, None], centroids, torch.nan)
    return centroids.view(size, groups, 4), codes.view(size, -1)[:, :count]


def from_centroids(centroids: Tensor, codes: Tensor, group: int) -> Tensor:
    size, count = codes.shape
    which = torch.arange(count, device=codes.device) // group
    places = (which * 4 + codes).to(torch.int64)
    return centroids.view(size, -1).gather(1, places)


def in_groups(values: Tensor, group: int) -> Tensor:
    """One group a row, the last of each filled up with zeros."""
    return pad(values, (0, -values.shape[1] % group)).view(-1, group)


def there_in(rows: Tensor, count: int, group: int) -> Tensor:
    """Which of the elements of groups are values, and do not fill up a row."""
    groups = -(-count // group)
    first = torch.arange(len(rows), device=rows.device) % groups * group
    return first[:, None] + torch.arange(group, device=rows.device) < count


def spread_of(rows: Tensor, count: int, group: int) -> tuple[Tensor, Tensor]:
    """Of each group the largest magnitude, and the mean square in units of its square; float64."""
    largest = rows.abs().amax(1).double()
    # Scaled before they are squared: squares of large float64 values would overflow.
    squares = (rows.double() / scale_by(largest)[:, None]).square()
    return largest, row_sums(squares) / there_in(rows, count, group).sum(1)


def scale_by(largest: Tensor) -> Tensor:
    """What a group is divided by: one where its largest magnitude would not do."""
    return torch.where((largest > 0) & largest.isfinite(), largest, 1)
