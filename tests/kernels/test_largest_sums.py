"""Lists added up and the largest of their sums: the same bits from every implementation."""

import pytest
import torch

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.largest_sums import largest_sums, reference
from thinwire.types import PADDING

each = pytest.mark.parametrize("case", cases("largest_sums"))


def lists(parts, room, numel, dtype=torch.float32, seed=0):
    """Rows of different lengths, many of whose indices are in several."""
    draw = torch.Generator().manual_seed(seed)
    indices = torch.full((parts, room), PADDING)
    values = torch.zeros(parts, room, dtype=dtype)
    for part in range(parts):
        count = max(0, room - 17 * part)
        indices[part, :count] = torch.randperm(numel, generator=draw)[:count].sort().values
        values[part, :count] = torch.randn(count, generator=draw, dtype=dtype)
    return indices, values


def dense_sum(indices, values, numel):
    total = torch.zeros(numel + 1, dtype=values.dtype)
    for row, own in zip(indices, values, strict=True):
        total.index_add_(0, row.clamp(max=numel), own)
    return total[:numel]


def check(case, indices, values, count):
    apart = torch.cat((values, torch.ones(len(values), 3).to(values)), 1)[:, : values.shape[1]]
    found, sums = case.run(largest_sums, indices, apart, count)
    expected, their_sums = reference.largest_sums(indices, values, count)
    assert torch.equal(found.cpu(), expected)
    assert bits(sums) == bits(their_sums)
    return found.cpu(), sums.cpu()


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("parts", "room", "count"), [(1, 600, 100), (3, 400, 250), (5, 90, 1)])
def test_sums_and_which_are_largest(case: Case, dtype, parts: int, room: int, count: int) -> None:
    indices, values = lists(parts, room, 700, dtype)
    found, sums = check(case, indices, values, count)
    total = dense_sum(indices, values, 700)
    torch.testing.assert_close(sums, total[found])
    least = reference.magnitude_keys(sums).min()
    left = total.clone()
    left[found] = 0
    assert bool((reference.magnitude_keys(left) <= least).all())
    assert bool((found[1:] > found[:-1]).all())


@each
def test_fewer_than_wanted_end_in_padding(case: Case) -> None:
    indices, values = lists(2, 30, 40)
    found, sums = check(case, indices, values, 55)
    there = int((found != PADDING).sum())
    assert there == int(dense_sum(indices, values, 40).count_nonzero()) < 55
    assert bool((found[there:] == PADDING).all()) and not sums[there:].any()


@each
def test_among_equals_the_lower_index(case: Case) -> None:
    indices = torch.arange(1200).view(2, 600)
    found, _ = check(case, indices, torch.ones(2, 600), 700)
    assert found.tolist() == list(range(700))


@each
def test_what_cancels_is_not_there(case: Case) -> None:
    indices = torch.arange(100).repeat(2, 1)
    values = torch.stack((normal(100), -normal(100)))
    values[1, 40] = 3.0
    found, _ = check(case, indices, values, 10)
    assert found.tolist() == [40, *[PADDING] * 9]


@each
@pytest.mark.parametrize("values_at", [(0, 0), (2, 9)])
def test_a_mark_is_handed_on_and_counts_as_zero(case: Case, values_at) -> None:
    indices, values = lists(3, 60, 100)
    plain, _ = check(case, indices, values.index_put(tuple(map(torch.tensor, values_at)),
                                                     torch.tensor(0.0)), 20)  # fmt: skip
    values[values_at] = torch.nan
    found, sums = check(case, indices, values, 20)
    assert torch.equal(found, plain)
    assert sums.isnan().tolist() == [True] + [False] * 19


@each
def test_a_mark_where_nothing_is_left(case: Case) -> None:
    indices, values = torch.full((2, 5), PADDING), torch.zeros(2, 5)
    indices[1, 0], values[1, 0] = 3, torch.nan
    found, sums = check(case, indices, values, 4)
    assert bool((found == PADDING).all())
    assert sums.isnan().tolist() == [True, False, False, False]


@each
def test_denormals_count(case: Case) -> None:
    indices = torch.arange(4)[None]
    values = torch.tensor([[2.0**-149, 0.0, -(2.0**-140), 1.0]])
    found, _ = check(case, indices, values, 3)
    assert found.tolist() == [0, 2, 3]
