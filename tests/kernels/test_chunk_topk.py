"""The largest of each chunk: all implementations bit for bit the same, with and without an addend.

Covers kernels/chunk_topk/chunks.py.
"""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, awkward_cases, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend
from thinwire.kernels.chunk_topk import Chunks, chunk_topk, reference
from thinwire.kernels.chunk_topk.chunks import total_of
from thinwire.kernels.chunk_topk.reference import _largest

everywhere = pytest.mark.parametrize("case", cases("chunk_topk"))


def plain(numel: int, length: int, density: float) -> Chunks:
    return Chunks(((0, numel, False),) if numel else (), length, density)


def assert_same(case: Case, x: Tensor, chunks: Chunks) -> None:
    indices, values = case.run(chunk_topk, x.clone(), chunks)
    expected, their_values = reference.chunk_topk(x.clone(), chunks)
    assert indices.tolist() == expected.tolist()
    assert bits(values) == bits(their_values)
    assert indices.numel() == total_of(chunks)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("numel", "length", "density"),
    [
        (0, 64, 0.1),
        (1, 64, 0.1),
        (300, 64, 0.05),
        (129, 128, 1.0),
        (700, 100, 0.3),
        (9000, 4096, 1 / 64),
    ],
)
def test_all_are_the_reference(
    case: Case, dtype: torch.dtype, numel: int, length: int, density: float
) -> None:
    assert_same(case, normal(numel, dtype), plain(numel, length, density))


@pytest.mark.parametrize(("case", "x"), awkward_cases("chunk_topk"))
def test_awkward_elements(case: Case, x: Tensor) -> None:
    for length, density in case.some([(64, 0.1), (50, 0.5), (1, 0.5), (1000, 0.01)]):
        assert_same(case, x, plain(x.numel(), length, density))


@everywhere
def test_chunks_whose_scale_differs_choose_all_the_same(case: Case) -> None:
    """The last chunk's k-th magnitude is no help where the next is a thousand times smaller."""
    x = normal(64 * 8) * 10.0 ** (torch.arange(8) * 5 % 8 - 4).repeat_interleave(64)
    x[128:192] = 0
    assert_same(case, x, plain(x.numel(), 64, 0.1))


@everywhere
def test_ranges_begin_anew_and_may_be_whole(case: Case) -> None:
    chunks = Chunks(((0, 70, False), (70, 75, True), (75, 280, False)), 64, 0.05)
    x = normal(280)
    assert_same(case, x, chunks)
    indices, _ = case.run(chunk_topk, x.clone(), chunks)
    assert set(range(70, 75)) <= set(indices.tolist())
    counts = [3, 1, 5, 3, 3, 3, 1]  # 64, 6 | 5 | 64, 64, 64, 13
    assert total_of(chunks) == sum(counts)


@everywhere
@pytest.mark.parametrize("grad_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum", [False, True])
def test_adds_first(case: Case, grad_dtype: torch.dtype, momentum: bool) -> None:
    chunks = plain(300, 64, 0.1)
    x, grad = normal(300), normal(300, grad_dtype, seed=1)
    velocity = normal(300, seed=2) if momentum else None
    expected = x.clone()
    Addend(grad, None if velocity is None else velocity.clone(), 0.9).add_to(expected)
    clone, given = case.place(x.clone()), case.place(grad.clone())
    moving = None if velocity is None else case.place(velocity.clone())
    with case.chosen():
        indices, values = chunk_topk(clone, chunks, Addend(given, moving, 0.9, clear=True))
    wanted, _ = reference.chunk_topk(expected.clone(), chunks)
    assert bits(clone) == bits(expected)
    assert indices.tolist() == wanted.tolist()
    assert bits(values) == bits(expected[wanted])
    assert not given.any()


@everywhere
def test_tells_of_what_is_not_finite(case: Case) -> None:
    grad = normal(200)
    grad[77] = torch.nan
    x, bad = case.place(torch.zeros(200)), case.place(torch.zeros((), dtype=torch.int32))
    with case.chosen():
        indices, _ = chunk_topk(x, plain(200, 64, 0.1), Addend(case.place(grad), bad=bad))
    assert int(bad) == 1
    assert x.isfinite().all() and x[77] == 0
    assert 77 not in indices.tolist()


def test_by_hand() -> None:
    rows = torch.tensor([[1.0, -3.0, 3.0, 0.0], [2.0, 2.0, 2.0, -2.0]])
    assert _largest(rows, 2).tolist() == [[1, 2], [0, 1]]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match="do not share out 10"):
        chunk_topk(torch.zeros(10), plain(9, 4, 0.5))
    with pytest.raises(RecipeError, match="must have 1 to"):
        plain(9, 0, 0.5)
    with pytest.raises(RecipeError, match="must begin at 4"):
        Chunks(((0, 4, False), (5, 9, False)), 4, 0.5)
