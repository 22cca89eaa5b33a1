"""Sums of ordered sparse vectors: bit for bit the same from everywhere, and what they say."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.implementations import Case, cases
from thinwire.errors import RecipeError
from thinwire.kernels import use
from thinwire.kernels.merge import merge, merge_all, merge_topk, nonzero, split_top, subtract
from thinwire.types import Sparse

NUMEL = 40
FAR = 2**34  # indices need 64 bits

# Few magnitudes, so that there are ties, cancellations and both zeros.
tied_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.1, 1e-45, 3e38, math.inf])
any_values = st.floats(width=32, allow_nan=False)


@st.composite
def sparse(draw, dtype=torch.float32, offset=0):
    indices = sorted(draw(st.sets(st.integers(0, NUMEL - 1))))
    values = draw(st.lists(tied_values | any_values, min_size=len(indices), max_size=len(indices)))
    places = torch.tensor(indices, dtype=torch.int64) + offset
    return Sparse(places, torch.tensor(values, dtype=dtype), offset + NUMEL)


pairs = st.one_of(
    st.tuples(sparse(), sparse()),
    st.tuples(sparse(torch.float64), sparse(torch.float64)),
    st.tuples(sparse(offset=FAR), sparse(offset=FAR)),
)


def bits(t: Tensor) -> list[int]:
    """NaN of Inf - Inf may come with either sign: all NaN count as one."""
    as_integers = torch.int32 if t.dtype == torch.float32 else torch.int64
    return torch.where(t.isnan(), torch.nan, t).contiguous().view(as_integers).tolist()


def same(a: Sparse, b: Sparse) -> bool:
    return (
        a.indices.tolist() == b.indices.tolist()
        and bits(a.values) == bits(b.values)
        and (a.numel, a.ordered, a.values.dtype) == (b.numel, b.ordered, b.values.dtype)
    )


def as_dict(s: Sparse) -> dict[int, Tensor]:
    assert s.ordered
    assert s.indices.dtype == torch.int64
    assert bool((s.indices[1:] > s.indices[:-1]).all())
    return dict(zip(s.indices.tolist(), s.values, strict=True))


@settings(max_examples=150)
@given(pairs)
def test_merge_is_the_sum_and_numba_is_the_reference(pair):
    a, b = pair
    with use("reference"):
        expected = merge(a, b)
    with use("numba"):
        assert same(merge(a, b), expected)
    left, right, total = as_dict(a), as_dict(b), as_dict(expected)
    assert total.keys() == left.keys() | right.keys()
    for index, value in total.items():
        parts = [side[index] for side in (left, right) if index in side]
        assert bits(value[None]) == bits(sum(parts[1:], parts[0])[None])


@settings(max_examples=150)
@given(pairs, st.integers(0, 2 * NUMEL))
def test_merge_topk_keeps_the_largest_and_prunes_the_rest(pair, k):
    with use("reference"):
        kept, pruned = merge_topk(*pair, k)
        total = as_dict(merge(*pair))
    with use("numba"):
        assert all(map(same, merge_topk(*pair, k), (kept, pruned)))
    assert kept.count == min(k, len(total))
    assert as_dict(kept).keys() | as_dict(pruned).keys() == total.keys()
    assert kept.count + pruned.count == len(total)

    def preference(index):
        magnitude = abs(total[index].item())
        return (-math.inf if math.isnan(magnitude) else -magnitude, index)

    assert kept.indices.tolist() == sorted(sorted(total, key=preference)[:k])


def drawn(count: int, seed: int, dtype: torch.dtype = torch.float32, offset: int = 0) -> Sparse:
    """From few values and places, so that there are ties, cancellations and both zeros."""
    draw = torch.Generator().manual_seed(seed)
    some = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 0.1, -0.1, 1e-45, 3e38, math.inf, -math.inf])
    values = some[torch.randint(len(some), (count,), generator=draw)].to(dtype)
    indices = torch.randperm(2 * count + 1, generator=draw)[:count].sort().values
    return Sparse(indices + offset, values, offset + 6001)


EXAMPLES = {
    "many": (drawn(1500, 1), drawn(1400, 2)),
    "few": (drawn(2, 3), drawn(1, 4)),
    "double": (drawn(500, 5, torch.float64), drawn(90, 6, torch.float64)),
    "far": (drawn(300, 7, offset=FAR), drawn(299, 8, offset=FAR)),
    "the same": (drawn(700, 9), drawn(700, 9)),
}


def on(device: str, s: Sparse) -> Sparse:
    return Sparse(s.indices.to(device), s.values.to(device), s.numel, s.ordered)


@pytest.mark.parametrize("case", cases("merge"))
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_device_gives_the_reference_s_bits(case: Case, name: str) -> None:
    a, b = EXAMPLES[name]
    with use("reference"):
        total = merge(a, b)
    assert same(on("cpu", case.run(merge, on(case.device, a), on(case.device, b))), total)
    for k in (1, total.count // 2, total.count - 1):
        with use("reference"):
            expected = merge_topk(a, b, k)
        split = case.run(merge_topk, on(case.device, a), on(case.device, b), k)
        assert all(map(same, (on("cpu", part) for part in split), expected))


@given(pairs)
def test_what_is_subtracted_is_gone(pair):
    a, b = (Sparse(s.indices, s.values.nan_to_num(0, 1, -1), s.numel) for s in pair)
    rest = subtract(merge(a, b), b)
    assert bool((rest.values != 0).all())
    assert subtract(a, a).count == 0
    assert same(subtract(a, Sparse(a.indices[:0], a.values[:0], a.numel)), nonzero(a))


@pytest.mark.parametrize("count", range(1, 10))
def test_many_are_merged_by_neighbouring_pairs(count):
    draw = torch.Generator().manual_seed(count)
    dense = torch.randn(count, NUMEL, generator=draw) * (
        torch.rand(count, NUMEL, generator=draw) < 0.3
    )
    parts = [Sparse(x.nonzero().flatten(), x[x != 0], NUMEL) for x in dense]
    torch.testing.assert_close(merge_all(parts).to_dense(), dense.sum(0))
    level = list(dense)
    while len(level) > 1:
        level = [sum(level[i + 1 : i + 2], level[i]) for i in range(0, len(level), 2)]
    assert torch.equal(merge_all(parts).to_dense(), level[0])


def test_rows_are_merged_as_rows():
    a = Sparse(torch.tensor([0, 3]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 8)
    b = Sparse(torch.tensor([2, 3]), torch.tensor([[5.0, 6.0], [-3.0, -4.0]]), 8)
    total = merge(a, b)
    assert total.indices.tolist() == [0, 2, 3]
    assert total.values.tolist() == [[1, 2], [5, 6], [0, 0]]
    assert nonzero(total).indices.tolist() == [0, 2]


@pytest.mark.parametrize("implementation", ["reference", "numba"])
def test_what_is_not_in_order_or_of_another_tensor_is_refused(implementation):
    one = Sparse(torch.tensor([1]), torch.ones(1), 4)
    with use(implementation):
        for other in (
            Sparse(one.indices, one.values, 4, False),
            Sparse(one.indices, one.values, 5),
        ):
            with pytest.raises(RecipeError, match="ordered parts of one tensor"):
                merge(one, other)


@pytest.mark.parametrize("case", cases("merge"))
def test_nan_counts_as_largest(case: Case) -> None:
    s = Sparse(torch.arange(4), torch.tensor([1.0, math.nan, -math.inf, 5.0]), 4)
    assert case.run(split_top, on(case.device, s), 2)[0].indices.tolist() == [1, 2]
    assert case.run(split_top, on(case.device, s), 1)[0].indices.tolist() == [1]
