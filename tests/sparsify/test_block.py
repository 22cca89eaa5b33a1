"""Block top-k."""

from dataclasses import replace

import pytest
import torch

from support.sparsify import DEVICES, at, draw, select
from thinwire.errors import RecipeError
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import BlockTopK
from thinwire.types import PADDING, Layout, Sparse


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000, 1003])
@pytest.mark.parametrize("density", [0.001, 0.1, 0.5, 1.0])
def test_whole_blocks_of_the_largest_norms(n: int, density: float, device: str) -> None:
    x = draw("normal", n, device=device)
    chosen = select(BlockTopK(density, block=8), x)
    blocks = [x[start : start + 8] for start in range(0, n, 8)]
    count = max(1, round(density * len(blocks)))
    norms = torch.stack([block.double().norm() for block in blocks])
    best = set(norms.topk(count).indices.tolist())
    expected = [i for i in range(n) if i // 8 in best]
    assert chosen.indices.tolist() == expected


def test_a_short_last_block_can_win_and_stays_in_range() -> None:
    x = torch.zeros(1003)
    x[1000:] = 9.0
    chosen = select(BlockTopK(0.001, block=250), x)
    assert chosen.indices.tolist() == [1000, 1001, 1002]


@pytest.mark.parametrize("short_wins", [True, False])
def test_of_each_tensor_a_number_that_every_rank_knows(short_wins: bool) -> None:
    """Where ranks must know the size of a selection, a short block is filled up, at the end."""
    x = torch.ones(40)
    x[16:20] = 9.0 if short_wins else 0.0  # the last block of the first tensor
    layout = Layout(("a", "b"), (20, 20), (False, False), each=True)
    ctx = replace(at(), steady=True, layout=layout)
    chosen = BlockTopK(0.5, block=16).select_parts(LazySum(x), {}, ctx)
    assert isinstance(chosen, Sparse)
    assert chosen.padded
    assert chosen.count == 32
    first = range(16, 20) if short_wins else range(16)
    there = [*first, *range(20, 36)]
    assert chosen.indices.tolist() == there + [PADDING] * (32 - len(there))


def test_among_equals_the_first_blocks_are_taken() -> None:
    chosen = select(BlockTopK(0.5, block=10), draw("constant", 40))
    assert chosen.indices.tolist() == list(range(20))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("small", "large"), [(1e25, 1e30), (1e-43, 1e-40), (1e-30, 1e-25)])
def test_norms_do_not_overflow_or_vanish(small: float, large: float, device: str) -> None:
    """Squares of these leave float32's range."""
    x = torch.full((4096,), small, device=device)
    x[3000] = large
    assert select(BlockTopK(1 / 64, block=64), x).indices[0] == 3000 // 64 * 64


@pytest.mark.parametrize("block", [0, -8, 2.5])
def test_a_block_that_is_no_size_is_refused(block: int) -> None:
    with pytest.raises(RecipeError, match=f"block={block} must be an integer of at least 1"):
        BlockTopK(0.1, block)
