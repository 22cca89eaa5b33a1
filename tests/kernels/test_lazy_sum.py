"""Sums still to be added up: whatever is asked first, the sum is added once, and to the bit."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import thinwire as tw
from support.sparsify import at
from thinwire.cookbook.registry import pieces
from thinwire.feedback import Momentum, Residual
from thinwire.kernels.addend import Addend
from thinwire.kernels.chunk_topk import Chunks
from thinwire.kernels.grouped_topk import Groups
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import ChunkTopK
from thinwire.sparsify._common import OnePass
from thinwire.types import TensorSpec

N = 3000


def numbers(seed: int) -> Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(seed))


def residual_sum() -> tuple[LazySum, Tensor]:
    return LazySum(numbers(1), Addend(numbers(2))), numbers(1) + numbers(2)


def momentum_sum() -> tuple[LazySum, Tensor]:
    velocity = numbers(3).mul_(0.9).add_(numbers(2))
    return LazySum(numbers(1), Addend(numbers(2), numbers(3), 0.9)), numbers(1) + velocity


MADE = [residual_sum, momentum_sum, lambda: (LazySum(numbers(1)), numbers(1))]
ONE_PASS = [name for name, piece in pieces("sparsifier").items() if issubclass(piece, OnePass)]
ASKED: dict[str, Callable[[LazySum], object]] = {
    "dense": lambda x: x.dense(),
    "compact": lambda x: x.compact(torch.tensor(1.0), 10),
    "grouped top-k": lambda x: x.grouped_topk(Groups(((0, N, 0),), (30,)), torch.tensor([2.0])),
    "chunk top-k": lambda x: x.chunk_topk(Chunks(((0, N, False),), 64, 0.1)),
    "hash list": lambda x: x.hash_list(torch.tensor(1.0), 64, 5),
    "norms": lambda x: x.block_norms(16),
    "peek": lambda x: x.peek(slice(1, None, 7)),
}


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("first", ASKED)
@pytest.mark.parametrize("second", ASKED)
def test_it_is_added_up_once_whoever_asks_first(
    make: Callable[[], tuple[LazySum, Tensor]], first: str, second: str
) -> None:
    pending, expected = make()
    ASKED[first](pending)
    ASKED[second](pending)
    assert torch.equal(pending.dense(), expected)
    assert torch.equal(pending.peek(slice(3, None, 5)), expected[3::5])


@pytest.mark.parametrize("make", MADE)
def test_what_is_found_is_what_is_in_the_sum(
    make: Callable[[], tuple[LazySum, Tensor]],
) -> None:
    expected = make()[1]
    passing = (expected.abs() >= 1.0).nonzero().flatten()
    indices, values = make()[0].compact(torch.tensor(1.0), N).trim()
    assert torch.equal(indices, passing)
    assert torch.equal(values, expected[passing])
    sample = make()[0].peek(slice(2, None, 3))
    assert torch.equal(sample, expected[2::3])


@pytest.mark.parametrize("name", ONE_PASS)
@pytest.mark.parametrize("feedback", [Residual(), Momentum(0.9), Momentum(0.9, clip_norm=1.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_selects_the_same_bits(
    name: str, feedback: Residual | Momentum, dtype: torch.dtype
) -> None:
    """Five steps with adding and selecting in one pass, beside five with one after the other."""
    piece = pieces("sparsifier")[name]
    sparsifier = ChunkTopK.of_density(0.02, 256) if piece is ChunkTopK else piece(0.02)
    pipeline = tw.Pipeline(sparsifier, feedback=feedback)
    spec = TensorSpec("w", N, dtype, torch.device("cpu"))
    fused, plain = pipeline.init(spec), pipeline.init(spec)
    for step in range(5):
        grad, ctx = numbers(10 + step).to(dtype), at(step)
        prepared = pipeline.prepare(grad.clone(), fused, ctx)  # which it may use up
        x = feedback.before(grad, plain["feedback"])
        chosen = sparsifier.select(x, plain["sparsifier"], ctx)
        assert torch.equal(prepared.x, x)
        assert torch.equal(prepared.selection.indices, chosen.indices)
        assert torch.equal(prepared.selection.values, chosen.values)
        for key, value in plain["feedback"].items():
            assert torch.equal(fused["feedback"][key], value)
