"""S2 Reducer: a bitmap of blocks, then an allreduce of a sketch of what is in them."""

import math
import sys

import pytest
import torch
import torch.distributed as dist

import thinwire as tw
from support.collective import laws
from support.sockets import settled_socket_bytes
from thinwire.bench.sockets import socket_bytes
from thinwire.codec import Pair
from thinwire.codec.sketch import CountSketch
from thinwire.collective import SketchAllReduce
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.types import ExchangeContext, Sparse

CASES = (*laws.SPARSE, *laws.DENSE)
ROOMY = CountSketch(ratio=3000, rows=3)  # so wide that hardly two elements meet


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws(cluster, size):
    """Replicas are identical; a rank delivers its selection; the sum is within its bound."""
    codec = CountSketch(0.5, rows=1 + size % 3)
    by_rank = cluster.run(laws.exchange, size, SketchAllReduce(16), codec, CASES)
    for number, case in enumerate(CASES):
        seen = [results[number] for results in by_rank]
        assert len({one.digest for one in seen}) == 1, (case, "replicas differ")
        assert all(one.unique for one in seen), (case, "indices")
        chosen = [laws.dense_of(case.selection(rank, size)) for rank in range(size)]
        for mine, one in zip(chosen, seen, strict=True):
            assert torch.equal(mine, one.delivered), case
        total, exact = seen[0].total.double(), sum(x.double() for x in chosen)
        if not case.numel:
            continue
        allowed = codec.error_bound(exact) + 1e-5 * sum(x.double().abs().sum() for x in chosen)
        laws.assert_within(total - exact, allowed, case)
        touched = sum(x.abs() for x in chosen) > 0
        assert not total[~blocks_of(touched, case, size)].any(), (
            case,
            "something where nobody selected",
        )


def blocks_of(touched, case, size):
    """Where a block, or a row, has something: the only places with estimates."""
    width = case.selection(0, size).width if case.kind == "rows" else 16
    at = touched.nonzero().flatten() // width
    mask = torch.zeros(-(-case.numel // width), width, dtype=torch.bool)
    mask[at] = True
    return mask.view(-1)[: case.numel]


@pytest.mark.parametrize(("size", "block"), [(1, 16), (2, 7), (3, 1), (4, 64), (5, 300)])
def test_with_room_for_all_it_is_the_sum(cluster, size, block):
    """Positions in the union are right: where nobody collides, everything comes back."""
    seen = cluster.run(laws.exchange, size, SketchAllReduce(block), ROOMY, CASES[:-1])
    laws.assert_laws(CASES[:-1], seen, lossless=True)


# ---- bytes

N, BLOCK, TOUCHED, WORD = 1 << 20, 64, 512, 4


def sketched_bytes(group, rank, size, codec):
    """What one exchange of the same blocks on every rank takes on the sockets."""
    comm = GroupCommunicator(group)
    indices = (torch.arange(TOUCHED)[:, None] * 32 * BLOCK + torch.arange(BLOCK)).view(-1)
    values = torch.randn(indices.numel(), generator=torch.Generator().manual_seed(rank))
    ctx = ExchangeContext(tensor="t", step=0, seed=0, comm=comm)
    dist.barrier(group)
    before, counted = settled_socket_bytes(), comm.traffic.sent
    SketchAllReduce(BLOCK).exchange(Sparse(indices, values, N), codec, ctx)
    dist.barrier(group)
    after = socket_bytes()
    dist.barrier(group)  # who is done lets go of its sockets, and so its peers of theirs
    return after[0] - before[0], after[1] - before[1], comm.traffic.sent - counted


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's struct tcp_info")
@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("ratio", [0.5, 0.25])
def test_bytes_on_the_sockets(cluster, size, ratio):
    """λ·nonzeros·4 by a ring of two rounds, and a bit per block to every peer."""
    table = 3 * math.ceil(ratio * TOUCHED * BLOCK / 3) * WORD
    formula = 2 * table * (size - 1) / size + (size - 1) * N / BLOCK / 8
    framing = 400 * 2 * (size - 1) + (size - 1) * 480 + 2 * 8 * 200  # Gloo's, and two barriers
    for sent, received, counted in cluster.run(sketched_bytes, size, CountSketch(ratio)):
        assert abs(counted - formula) <= 8 * size
        for moved in (sent, received):
            assert formula * 0.999 <= moved <= formula + framing


# ---- the recipe


def residual_after(group, rank, size, recipe, numel):
    """The residual after a step, the gradient before it, and the update."""
    sync = tw.Synchronizer(recipe, group)
    grad = torch.randn(numel, generator=torch.Generator().manual_seed(rank))
    given = grad.clone()
    update = sync.average("w", grad)
    return sync.state_dict()["tensors"]["w"]["feedback/residual"], given, update


def test_only_what_was_not_selected_waits(cluster):
    """Not the sketch's noise: in the chosen blocks the residual is zero, elsewhere the gradient."""
    recipe = tw.recipe("s2", density=0.25, block=16, bypass=0)
    for residual, given, update in cluster.run(residual_after, 3, recipe, 400):
        waits = residual.view(-1, 16).any(1)
        assert int((~waits).sum()) == 6  # a quarter of 25 blocks
        assert torch.equal(residual.view(-1, 16)[waits], given.view(-1, 16)[waits])
        assert update.any()


def many_steps(group, rank, size, ratio, steps):
    """The same gradient again and again: what waits in the end, and how far the updates strayed.

    In the long run all that came in goes out, but for what still waits and for the noise.
    """
    recipe = tw.recipe("s2", density=0.25, block=16, ratio=ratio, bypass=0)
    sync = tw.Synchronizer(recipe, group, seed=1)
    grad = torch.randn(640, generator=torch.Generator().manual_seed(rank))
    updates = torch.stack([sync.average("w", grad.clone()) for _ in range(steps)])
    waiting = sync.state_dict()["tensors"]["w"]["feedback/residual"]
    settled = steps * grad - waiting
    dist.all_reduce(settled, group=group)
    return waiting, ((updates.sum(0) - settled / size).norm() / updates.norm()).item()


def test_the_noise_is_not_fed_back(cluster):
    """What waits is what would wait without any, bit for bit; and what goes out averages out."""
    noisy, exact = (cluster.run(many_steps, 2, ratio, 60) for ratio in (0.5, 3000))
    for (waiting, error), (waiting_too, rounding) in zip(noisy, exact, strict=True):
        assert torch.equal(waiting, waiting_too)
        assert rounding < 1e-5
        # Noise grows as the root of the steps, as does `updates.norm()`; a bias, as the steps.
        assert 0.1 < error < 1


@pytest.mark.parametrize("block", [0, -3, 1.5])
def test_bad_settings_are_refused(block):
    with pytest.raises(RecipeError, match=f"block={block}"):
        SketchAllReduce(block)


def test_takes_only_what_adds():
    with pytest.raises(RecipeError, match="'linear'"):
        tw.Pipeline(codec=Pair(), collective=SketchAllReduce())
    with pytest.raises(RecipeError, match="'bytes'"):
        tw.recipe("topk", codec=CountSketch())


def test_in_short_notation():
    recipe = tw.recipe("block(0.25, 16) | sketch(0.25, rows=5) | sketch-allreduce(16) | residual")
    assert (recipe.codec, recipe.collective) == (CountSketch(0.25, 5), SketchAllReduce(16))
    assert tw.recipe(recipe.to_dict()) == recipe
    with pytest.raises(RecipeError, match="no setting 'width'"):
        tw.recipe("block | sketch(width=3) | sketch-allreduce | residual")
