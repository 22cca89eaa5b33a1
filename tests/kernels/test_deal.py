"""Elements dealt to their owners: the same rows from every implementation.

Covers kernels/_lists.py.
"""

import pytest
import torch

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.deal import deal, reference
from thinwire.rng import hash_to_range
from thinwire.types import PADDING

each = pytest.mark.parametrize("case", cases("deal"))


def selection(count, seed=0):
    indices = torch.randperm(20 * count + 1, generator=torch.Generator().manual_seed(seed))
    return indices[:count].sort().values, normal(count, seed=seed)


@each
@pytest.mark.parametrize(("owners", "room"), [(1, 3000), (3, 900), (4, 700), (7, 500)])
def test_rows_are_the_references(case: Case, owners: int, room: int) -> None:
    indices, values = selection(2500)
    indices[2300:], values[2300:] = PADDING, 0  # nobody's
    rows, dealt = case.run(deal, indices, values, owners, room, 11)
    expected, their_values = reference.deal(indices, values, owners, room, 11)
    assert torch.equal(rows.cpu(), expected)
    assert bits(dealt.flatten()) == bits(their_values.flatten())


@each
def test_every_element_is_its_owners_and_in_order(case: Case) -> None:
    indices, values = selection(1000)
    rows, dealt = case.run(deal, indices, values, 4, 400, 5)
    found = [row[row != PADDING].cpu() for row in rows]
    for owner, row in enumerate(found):
        assert bool((row[1:] > row[:-1]).all())
        assert bool((hash_to_range(row, 4, 5) == owner).all())
        assert torch.equal(dealt[owner, : row.numel()].cpu(), values[torch.isin(indices, row)])
        assert not dealt[owner, row.numel() :].any()
    assert torch.equal(torch.cat(found).sort().values, indices)


@each
def test_what_finds_no_room_is_the_rows_last(case: Case) -> None:
    indices, values = selection(1000)
    wide, _ = case.run(deal, indices, values, 2, 1000, 3)
    narrow, dealt = case.run(deal, indices, values, 2, 100, 3)
    assert torch.equal(narrow, wide[:, :100])
    assert dealt.count_nonzero() == 200


@each
def test_nothing_to_deal(case: Case) -> None:
    indices, values = selection(0)
    rows, dealt = case.run(deal, indices, values, 3, 4, 0)
    assert bool((rows == PADDING).all()) and not dealt.any()


@pytest.mark.parametrize("stride", [1, 2, 64, 768, 1024])
@pytest.mark.parametrize("owners", [2, 4, 8, 13])
def test_rows_are_equally_full_wherever_elements_lie(stride: int, owners: int) -> None:
    indices = torch.arange(20_000) * stride
    rows, _ = deal(indices, torch.ones(20_000), owners, 20_000, 7)
    mean = 20_000 / owners
    assert bool(((rows != PADDING).sum(1) - mean).abs().max() < 4 * mean**0.5)
