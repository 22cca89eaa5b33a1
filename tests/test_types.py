"""What passes between pieces: some elements, or rows, of a flat tensor; products in it."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.rng import stream_seed
from thinwire.types import ExchangeContext, Matrices, Products, Sparse, TensorSpec, accumulator


class Place:
    rank, size = 2, 4


def context(**settings):
    return ExchangeContext(tensor="w", step=3, seed=7, comm=Place(), **settings)


def test_elements_of_a_vector():
    s = Sparse(torch.tensor([1, 4]), torch.tensor([2.0, -3.0]), 6)
    assert (s.count, s.width, s.rows) == (2, 1, 6)
    assert s.to_dense().tolist() == [0, 2, 0, 0, -3, 0]
    assert s.elements() is s
    assert s.sorted() is s


def test_rows_of_a_matrix():
    s = Sparse(torch.tensor([2, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 8, ordered=False)
    assert (s.count, s.width, s.rows) == (2, 2, 4)
    assert s.to_dense().tolist() == [3, 4, 0, 0, 1, 2, 0, 0]
    singles = s.elements()
    assert singles.indices.tolist() == [4, 5, 0, 1]
    assert singles.values.tolist() == [1, 2, 3, 4]
    assert (singles.count, singles.width, singles.numel, singles.ordered) == (4, 1, 8, False)


def test_ordered_rows_are_ordered_elements():
    s = Sparse(torch.tensor([0, 2]), torch.ones(2, 3), 9)
    assert s.elements().ordered
    assert s.elements().indices.tolist() == [0, 1, 2, 6, 7, 8]


def test_sorted_moves_values_with_their_indices():
    s = Sparse(torch.tensor([5, 0, 3]), torch.tensor([50.0, 0.5, 30.0]), 6, ordered=False)
    assert s.sorted().indices.tolist() == [0, 3, 5]
    assert s.sorted().values.tolist() == [0.5, 30.0, 50.0]
    assert s.sorted().ordered


@pytest.mark.parametrize("values", [torch.empty(0), torch.empty(0, 3)])
def test_nothing_is_an_ordinary_selection(values):
    s = Sparse(torch.empty(0, dtype=torch.int64), values, 12, ordered=False)
    assert s.count == 0
    assert s.to_dense().tolist() == [0] * 12
    assert s.elements().indices.tolist() == []
    assert s.elements().values.shape == (0,)
    assert s.sorted().count == 0


def test_an_empty_tensor():
    s = Sparse(torch.empty(0, dtype=torch.int64), torch.empty(0), 0)
    assert (s.count, s.rows) == (0, 0)
    assert s.to_dense().shape == (0,)
    rows_of_nothing = Sparse(torch.empty(0, dtype=torch.int64), torch.empty(0, 0), 0)
    assert (rows_of_nothing.count, rows_of_nothing.width, rows_of_nothing.rows) == (0, 0, 0)


def test_add_to_works_in_place_and_scales():
    s = Sparse(torch.tensor([1]), torch.tensor([[2.0, 4.0]]), 4)
    dense = torch.ones(4)
    assert s.add_to(dense, alpha=-0.5) is dense
    assert dense.tolist() == [1, 1, 0, -1]


def test_a_sparse_cannot_be_changed():
    s = Sparse(torch.tensor([1]), torch.tensor([2.0]), 4)
    with pytest.raises(FrozenInstanceError):
        s.numel = 5


@given(
    rows=st.integers(1, 40),
    width=st.integers(1, 5),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_rows_elements_and_sorted_are_the_same_tensor(rows, width, share, seed):
    g = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(rows, generator=g)[: int(share * rows)]
    s = Sparse(chosen, torch.randn(chosen.numel(), width, generator=g), rows * width, ordered=False)
    expected = torch.zeros(rows, width)
    expected[s.indices] = s.values
    for same in (s, s.elements(), s.sorted(), s.sorted().elements(), s.elements().sorted()):
        assert torch.equal(same.to_dense(), expected.view(-1))
        assert same.numel == rows * width
    assert s.elements().sorted().indices.tolist() == s.sorted().elements().indices.tolist()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_the_accumulating_dtype(dtype, expected):
    assert accumulator(dtype) == expected
    assert TensorSpec("w", 1, dtype, torch.device("cpu")).accumulator == expected


def test_a_context_addresses_its_randomness():
    ctx = context()
    assert ctx.stream("hash") == stream_seed(7, 3, "w", "hash")
    assert ctx.stream("hash", shared=False) == stream_seed(7, 3, "w", "hash", rank=2)


def test_output_is_the_gradients_storage_where_it_fits():
    out = torch.ones(4)
    ctx = context(out=out)
    assert ctx.output(4, torch.empty(0)) is out
    assert out.tolist() == [0, 0, 0, 0]
    out.fill_(5)
    assert ctx.output(4, torch.empty(0), zeroed=False).tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize(
    "settings", [{}, {"out": torch.ones(3)}, {"out": torch.ones(4, dtype=torch.float16)}]
)
def test_output_is_new_where_it_does_not_fit(settings):
    made = context(**settings).output(4, torch.empty(0, dtype=torch.float32))
    assert made.tolist() == [0, 0, 0, 0]
    assert made.dtype == torch.float32
    assert all((given == 1).all() for given in settings.values())


def test_products_where_their_matrices_lie():
    """Two matrices of 2 × 3 with a number between them, and two behind; not where memory begins."""
    where = Matrices(2, 2, 3, 0, 7)
    left, right = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]), torch.ones(2, 1, 3)
    products = Products([(where, left, right)], [(6, torch.tensor([9.0])), (13, torch.ones(2))])
    whole = [1, 1, 1, 2, 2, 2, 9, 3, 3, 3, 4, 4, 4, 1, 1]
    room = torch.full((18,), 7.0)
    assert products.write_to(room[2:17]).tolist() == whole
    assert room[[0, 1, 17]].tolist() == [7, 7, 7]
    assert products.add_to(room[2:17], alpha=-1).count_nonzero() == 0
    assert products.add_to(room[2:17]).tolist() == whole


def test_products_without_anything_between():
    where = Matrices(1, 2, 2, 0, 4)
    products = Products([(where, torch.ones(1, 1, 2), torch.ones(1, 1, 2))])
    assert products.add_to(products.write_to(torch.zeros(4))).tolist() == [2, 2, 2, 2]
