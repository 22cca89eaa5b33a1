"""The sum of sparse parts: unique ascending indices, one fixed order, the same bits everywhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.implementations import Case, cases
from thinwire.kernels.region_reduce import common, numba, reference, region_reduce
from thinwire.types import Sparse

IMPLEMENTATIONS = (reference.region_reduce, numba.region_reduce)


def part(numel: int, count: int, seed: int, dtype: torch.dtype = torch.float32) -> Sparse:
    draw = torch.Generator().manual_seed(seed)
    indices = torch.randperm(numel, generator=draw)[:count].sort().values
    return Sparse(indices, torch.randn(indices.numel(), generator=draw).to(dtype), numel)


def bits(x: Tensor) -> Tensor:
    return x.view(torch.int64 if x.dtype == torch.float64 else torch.int32)


def same(a: Sparse, b: Sparse) -> bool:
    return (
        torch.equal(a.indices, b.indices)
        and a.values.dtype == b.values.dtype
        and torch.equal(bits(a.values), bits(b.values))
        and (a.numel, a.ordered) == (b.numel, b.ordered)
    )


@settings(max_examples=200, deadline=None)
@given(
    numel=st.integers(1, 400),
    counts=st.lists(st.integers(0, 400), min_size=1, max_size=9),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_numba_is_the_reference_and_both_are_the_sum(numel, counts, seed, dtype):
    parts = [part(numel, count, seed + i, dtype) for i, count in enumerate(counts)]
    expected = torch.zeros(numel, dtype=dtype)
    for one in parts:
        one.add_to(expected)
    touched = torch.zeros(numel, dtype=torch.bool)
    for one in parts:
        touched[one.indices] = True
    for reduce in (*IMPLEMENTATIONS, region_reduce):
        total = reduce(parts, numel)
        assert torch.equal(total.indices, touched.nonzero().flatten())
        assert torch.equal(total.to_dense(), expected)
        assert same(total, reference.region_reduce(parts, numel))


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(1, 7), seed=st.integers(0, 2**32))
def test_a_sum_can_go_on_with_the_same_bits(cut, seed):
    parts = [part(300, 120, seed + i) for i in range(8)]
    for reduce in IMPLEMENTATIONS:
        so_far = reduce(parts[:cut], 300)
        assert same(reduce([so_far, *parts[cut:]], 300), reduce(parts, 300))


def test_nothing_at_all():
    empty = Sparse(torch.empty(0, dtype=torch.int64), torch.empty(0), 0)
    for reduce in (*IMPLEMENTATIONS, region_reduce):
        assert reduce([empty, empty], 0).count == 0


def test_every_bit_of_a_word_and_the_last_element():
    numel = 128
    parts = [part(numel, numel, 1), Sparse(torch.tensor([0, 63, 64, 127]), torch.ones(4), numel)]
    assert same(numba.region_reduce(parts, numel), reference.region_reduce(parts, numel))


def test_a_huge_region_costs_no_memory():
    numel = 2**34
    indices = torch.tensor([5, 2**33 - 1, 2**33, numel - 1])
    one = Sparse(indices, torch.ones(4), numel)
    other = Sparse(indices[1:3], torch.full((2,), 2.0), numel)
    total = region_reduce([one, other], numel)
    assert total.indices.tolist() == indices.tolist()
    assert total.values.tolist() == [1, 3, 3, 1]


SIZES = {
    "some": (1000, (100, 300, 200)),
    "mixed": (5000, (1300, 0, 17, 2500, 1)),
    "many": (300, (40,) * 33),
    "everything": (259, (259,) * 4),
    "one": (70, (30,)),
    "nothing": (70, (0, 0)),
    "far": (2**34, (200, 300)),
}


@pytest.mark.parametrize("case", cases("region_reduce"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SIZES)
def test_every_device_gives_the_reference_s_bits(case: Case, name: str, dtype: torch.dtype) -> None:
    numel, counts = SIZES[name]
    parts = [part(min(numel, 5000), count, i, dtype) for i, count in enumerate(counts)]
    for one in parts:
        one.values[::7] = -0.0
        one.indices.add_(max(0, numel - 5000))
    there = [
        Sparse(one.indices.to(case.device), one.values.to(case.device), numel) for one in parts
    ]
    total = case.run(region_reduce, there, numel)
    here = Sparse(total.indices.cpu(), total.values.cpu(), total.numel, total.ordered)
    assert same(here, reference.region_reduce(parts, numel))


@settings(max_examples=200, deadline=None)
@given(
    a=st.lists(st.integers(0, 60), unique=True).map(sorted),
    b=st.lists(st.integers(0, 60), unique=True).map(sorted),
)
def test_what_two_have_in_common(a, b):
    expected = [position for position, index in enumerate(a) if index in b]
    ours, others = (torch.tensor(x, dtype=torch.int64) for x in (a, b))
    for find in (reference.common, numba.common, common):
        found = find(ours, others)
        assert found.dtype == torch.int64
        assert found.tolist() == expected
