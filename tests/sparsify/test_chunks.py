"""Chunk top-k: every chunk has its say, and all ranks know how many are chosen."""

import pytest
import torch

from support.sparsify import at, draw, select
from thinwire.errors import RecipeError
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import ChunkTopK
from thinwire.types import Layout, Sparsifier


def test_each_chunk_gives_its_largest_whatever_its_scale() -> None:
    x = draw("normal", 4 * 4096)
    x[4096:8192] *= 1e-6
    chosen = select(ChunkTopK(64), x)
    assert torch.equal((chosen.indices // 4096).bincount(), torch.full((4,), 64))
    for c in range(4):
        largest = x[4096 * c : 4096 * (c + 1)].abs().topk(64).indices.sort().values + 4096 * c
        assert torch.equal(chosen.indices[64 * c : 64 * (c + 1)], largest)


@pytest.mark.parametrize(("numel", "count"), [(0, 0), (1, 1), (4096, 64), (4097, 65), (6144, 96)])
def test_the_number_follows_from_the_size(numel: int, count: int) -> None:
    assert select(ChunkTopK(), draw("cauchy", numel)).count == count


def test_a_density_is_so_many_of_each_chunk() -> None:
    assert ChunkTopK.of_density(1 / 64) == ChunkTopK(64, 4096)
    assert ChunkTopK.of_density(1e-9, 256) == ChunkTopK(1, 256)
    assert ChunkTopK(32).density == 1 / 128


@pytest.mark.parametrize("each", [True, False])
def test_tensors_are_not_mixed_and_small_ones_are_let_past(each: bool) -> None:
    layout = Layout(("a", "b", "c", "d"), (100, 7, 0, 150), (False, True, False, False), each)
    x = draw("normal", 257)
    ctx = at()
    ctx = type(ctx)(ctx.tensor, ctx.step, ctx.seed, ctx.comm, layout=layout)
    sparsifier = ChunkTopK(4, chunk=64)
    chosen = sparsifier.select_parts(LazySum(x), {}, ctx)
    assert chosen.count == 4 + 2 + 7 + 4 + 4 + 1
    assert set(range(100, 107)) <= set(chosen.indices.tolist())
    if each:  # as one tensor after the other
        apart = Sparsifier.select_parts(sparsifier, LazySum(x), {}, ctx)
        assert torch.equal(chosen.indices, apart.indices)
        assert torch.equal(chosen.values, apart.values)


@pytest.mark.parametrize(("k", "chunk"), [(0, 64), (65, 64), (1, 0), (1, 1 << 20), (0.5, 64)])
def test_settings_are_checked(k: int, chunk: int) -> None:
    with pytest.raises(RecipeError, match="must be an integer in"):
        ChunkTopK(k, chunk)
