"""Bloom filters: nothing is lost, the rate is honest, all implementations agree bit for bit."""

import math
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.implementations import Case, cases
from thinwire.kernels.bloom import Filter, insert, numba, positives, reference, resolve

SETS = st.sets(st.integers(0, 999), max_size=60).map(
    lambda rows: torch.tensor(sorted(rows), dtype=torch.int64)
)


def whole(bits: float) -> int:
    """A size of whole words."""
    return 64 * math.ceil(bits / 64)


@given(rows=SETS, bits=st.integers(1, 15), hashes=st.integers(1, 12), salt=st.integers(0, 2**64))
def test_numba_is_the_reference(rows: torch.Tensor, bits: int, hashes: int, salt: int) -> None:
    size = whole(bits * rows.numel())
    filter = insert(rows, size, hashes, salt)
    assert torch.equal(filter.words, reference.insert(rows, size, hashes, salt))
    found = positives(filter, 1000)
    assert torch.equal(reference.positives(filter, 1000, 1000), found)
    assert torch.isin(rows, found).all()
    for count in {0, rows.numel(), found.numel()}:
        picked = resolve(filter, found, count)
        assert torch.equal(reference.resolve(filter, found, count), picked)
        assert picked.numel() == count
        assert torch.isin(picked, found).all()
        assert bool((picked[1:] > picked[:-1]).all())


@pytest.mark.parametrize(("rate", "bits", "hashes"), [(0.001, 14.378, 10), (0.01, 9.585, 7)])
def test_the_rate_is_honest(rate: float, bits: float, hashes: int) -> None:
    """Double hashing, the range reduction and groups of rows cost nothing that can be seen."""
    rows, count = 2_000_000, 20_000
    draw = torch.Generator().manual_seed(2)
    held = torch.randperm(rows, generator=draw)[:count].sort().values
    filter = insert(held, whole(bits * count), hashes, salt=5)
    false = positives(filter, rows).numel() - count
    expected = rate * (rows - count)
    assert abs(false - expected) < 5 * expected**0.5 + 0.03 * expected


@pytest.mark.parametrize("run", [8, 64, 1000])
def test_rows_side_by_side_do_not_raise_the_rate(run: int) -> None:
    """Whole runs of rows: false positives come in bunches, and are as many over some salts."""
    rows, count, salts = 4_000_000, 64_000, 4
    draw = torch.Generator().manual_seed(run)
    starts = torch.randperm(rows // run, generator=draw)[: count // run] * run
    held = (starts[:, None] + torch.arange(run)).view(-1).sort().values
    filters = [insert(held, whole(9.585 * count), 7, salt) for salt in range(salts)]
    false = sum(positives(filter, rows).numel() - count for filter in filters)
    expected = 0.01 * (rows - count) * salts
    assert abs(false - expected) < 0.15 * expected


def test_conflict_sets_find_most_of_what_was_put_in() -> None:
    """DeepReduce, Algorithm 1: a positive with a bit of its own is true and always chosen."""
    rows, count = 200_000, 2000
    held = torch.randperm(rows, generator=torch.Generator().manual_seed(1))[:count].sort().values
    filter = insert(held, whole(14.378 * count), 10, salt=3)
    found = positives(filter, rows)
    bits = reference.probes(found, filter.size, filter.hashes, filter.salt)
    users = torch.bincount(torch.cat([b.unique() for b in bits]), minlength=filter.size)
    certain = found[(users[bits] == 1).any(1)]
    assert torch.isin(certain, held).all()
    picked = resolve(filter, found, count)
    assert torch.isin(certain, picked).all()
    assert torch.isin(picked, held).float().mean() > 0.99
    assert torch.isin(found, held).float().mean() < 0.95


def test_the_search_stops() -> None:
    filter = insert(torch.arange(100), 64, 1, salt=0)  # all bits set or nearly
    assert positives(filter, 2**24, most=10).numel() <= 2**20
    assert numba.positives(filter, 0, 0).numel() == 0


@pytest.mark.parametrize("case", cases("bloom"))
@pytest.mark.parametrize(("count", "hashes"), [(0, 3), (1, 1), (400, 10)])
def test_all_are_the_reference_on_much(case: Case, count: int, hashes: int) -> None:
    """In two shares where an implementation has them."""
    rows, salt = 9001, 2**64 - 3
    held = torch.randperm(rows, generator=torch.Generator().manual_seed(1))[:count].sort().values
    size = whole(1 + 15 * count)
    words = reference.insert(held, size, hashes, salt)
    filter = case.run(insert, held, size, hashes, salt)
    assert torch.equal(filter.words.cpu(), words)
    found = case.run(positives, filter, rows)
    expected = reference.positives(Filter(words, size, hashes, salt), rows, rows)
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("case", cases("bloom"))
def test_nothing_is_lost_between_chunks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(f"thinwire.kernels.bloom.{case.implementation}")
    chunk = "_CHUNK" if case.implementation == "reference" else "CHUNK"
    monkeypatch.setattr(module, chunk, 704)
    held = torch.arange(0, 2000, 7)
    filter = case.run(insert, held, 4032, 10, 3)
    expected = numba.positives(insert(held, 4032, 10, 3), 2000, 2000)
    assert torch.equal(case.run(positives, filter, 2000).cpu(), expected)
    assert case.run(positives, filter, 2000, 10).numel() > 10
