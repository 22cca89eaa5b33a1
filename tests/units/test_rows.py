"""Gradients that are sparse by themselves: any recipe averages them whole, and gives back COO."""

import io

import pytest
import torch
from torch import Tensor

import thinwire as tw
from thinwire.codec import Pair
from thinwire.codec.sketch import CountSketch
from thinwire.collective import AllGather, Dense, GTopK, OkTopK, SketchAllReduce, UnionAllReduce
from thinwire.comm import GroupCommunicator
from thinwire.engine.step import StepRunner
from thinwire.types import Sparse
from thinwire.units.rows import RowUnit, from_coo, to_coo

# Each would prune or round a dense gradient. A sketch with so much room is exact.
EXACT = (
    "topk(0.01)",
    "topk(0.01) | rice+bf16 | allgather | residual",
    "signsgd",
    "topk-dsa(0.01)",
    "gtopk(0.01)",
    "ok-topk(0.01)",
    "ok-topk(0.01, codec='rice')",
    "omnireduce(0.01)",
    "union(0.01)",
    "block(0.01) | none | union(64, 'bf16') | residual",
    "s2(ratio=3000)",
    "dense",
    "fp16",
    "parallax",
)
ROWS, WIDTH = 40, 3


def coo(rows: int, picks: list[int], rank: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An embedding's gradient, not coalesced: rows that were looked up, with repetition."""
    draw = torch.Generator().manual_seed(rank)
    values = torch.randn(len(picks), WIDTH, generator=draw).to(dtype)
    indices = torch.tensor([picks], dtype=torch.int64)
    return torch.sparse_coo_tensor(indices, values, (rows, WIDTH), check_invariants=False)


def picked(rank: int, size: int, step: int) -> list[int]:
    """Row 7 everywhere, 9 twice on a rank, others here and there; the last rank has none at all."""
    if rank == size - 1 and size > 1:
        return []
    return [7, 9, 9, (3 * rank + step) % ROWS, ROWS - 1 - rank]


# ---- COO tensors and back


@pytest.mark.parametrize("sparse_dims", [1, 2, 3])
def test_there_and_back(sparse_dims):
    dense = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    dense[dense.abs() < 1] = 0
    dense[2] = 0
    given = dense.to_sparse(sparse_dims)
    back = to_coo(from_coo(given), given)
    assert back.is_coalesced()
    assert (back.sparse_dim(), back.dense_dim()) == (sparse_dims, 3 - sparse_dims)
    assert torch.equal(back.indices(), given.indices())
    assert torch.equal(back.to_dense(), dense)


def test_totals_of_any_form():
    """Rows out of order, single elements, or all of the tensor."""
    given = coo(6, [4, 1], 0).coalesce()
    rows = from_coo(given)
    backwards = Sparse(rows.indices.flip(0), rows.values.flip(0), rows.numel, ordered=False)
    for total in (rows, backwards, rows.elements(), rows.to_dense()):
        assert torch.equal(to_coo(total, given).indices(), given.indices())
        assert torch.equal(to_coo(total, given).values(), given.values())


def test_what_a_recipe_prunes_or_rounds_is_not_pruned_or_rounded():
    assert tw.recipe("gtopk", density=0.01).row_route() == (GTopK(1.0), Pair())
    collective, codec = tw.recipe("ok-topk", density=0.01, codec="rice").row_route()
    assert isinstance(collective, OkTopK)
    assert (collective.density, codec) == (1.0, tw.recipe("topk", codec="rice").codec)
    assert tw.recipe("topk", codec="rice+bf16").row_route() == (AllGather(), Pair())
    assert tw.recipe("bf16").row_route() == (Dense(), None)
    assert tw.recipe("parallax").row_route() == (AllGather(), Pair())
    assert tw.recipe("s2", ratio=0.25).row_route() == (SketchAllReduce(64), CountSketch(0.25))
    assert tw.recipe("topk", coo="union(8, 'fp16')").row_route() == (UnionAllReduce(8), None)
    assert tw.recipe("topk", coo="sketch-allreduce").row_route() == (
        SketchAllReduce(),
        CountSketch(),
    )


def test_the_choice_can_be_written_down_and_is_checked():
    recipe = tw.recipe("ok-topk", coo="union(16)")
    assert recipe.row_collective == UnionAllReduce(16)
    assert tw.recipe(recipe.to_dict()) == recipe
    assert tw.recipe('{"recipe": "dense", "coo": "allgather"}') == tw.recipe("parallax")
    with pytest.raises(tw.RecipeError, match="row_collective=3"):
        tw.recipe("topk", coo=3)
    with pytest.raises(tw.RecipeError, match="unknown collective 'post'"):
        tw.recipe("topk", coo="post")


# ---- over the ranks


def unit_of(recipe: str, rows: int = ROWS) -> RowUnit:
    """What a synchronizer keeps of a COO gradient; to make these over one group is quicker."""
    return RowUnit.of("e", coo(rows, [], 0), tw.recipe(recipe), step=0)


def average_each(group, rank, size, recipes, steps):
    """Each recipe in turn: indices, values and form of the means, and whether the input stayed."""
    seen, comm = [], GroupCommunicator(group)
    for recipe in recipes:
        unit = unit_of(recipe)
        for step in range(steps):
            grad = coo(ROWS, picked(rank, size, step), rank)
            grad = grad.coalesce() if step else grad
            before = grad.to_dense()
            mean = StepRunner(comm, None, seed=0).average_rows(unit, grad)
            kept = torch.equal(before, grad.to_dense())
            seen.append((mean.is_coalesced() and kept, mean.indices(), mean.values()))
    return seen


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])  # each collective's own laws try all of them
def test_every_recipe_averages_them_whole(cluster, size):
    by_rank = cluster.run(average_each, size, EXACT, 2)
    for number in range(2 * len(EXACT)):
        recipe, step = EXACT[number // 2], number % 2
        grads = [coo(ROWS, picked(r, size, step), r).to_dense().double() for r in range(size)]
        expected = sum(grads) / size
        allowed = (size + 4) * torch.finfo(torch.float32).eps * sum(g.abs() for g in grads)
        seen = [results[number] for results in by_rank]
        for sound, indices, values in seen:
            assert sound, recipe
            assert torch.equal(indices, seen[0][1]) and torch.equal(values, seen[0][2]), recipe
        found = torch.zeros(ROWS, WIDTH, dtype=torch.float64)
        found[seen[0][1][0]] = seen[0][2].double()
        assert bool(((found - expected).abs() <= allowed).all()), (recipe, step)


def empty_everywhere(group, rank, size, recipes):
    """No rank looked anything up."""
    comm = GroupCommunicator(group)
    runner = StepRunner(comm, None, seed=0)
    means = [runner.average_rows(unit_of(recipe), coo(ROWS, [], rank)) for recipe in recipes]
    return [(mean.is_sparse, mean.shape, mean._nnz()) for mean in means]


def test_empty_batches(cluster):
    for found in cluster.run(empty_everywhere, 3, EXACT):
        assert found == [(True, (ROWS, WIDTH), 0)] * len(EXACT)


HUGE = 2**31


def huge_vocabulary(group, rank, size, recipes):
    """Rows at both ends of 2^31: indices only, for no memory holds the tensor."""
    picks = [0, 5 + rank, HUGE - 1 - rank, HUGE - 1]
    report, comm = [], GroupCommunicator(group)
    for recipe in recipes:
        before = comm.traffic.sent
        runner = StepRunner(comm, None, seed=0)
        mean = runner.average_rows(unit_of(recipe, HUGE), coo(HUGE, picks, rank))
        report.append((mean.indices()[0].tolist(), mean.values(), comm.traffic.sent - before))
    return report


def test_a_vocabulary_of_two_billion_rows(cluster):
    recipes = [r for r in EXACT if r not in ("dense", "fp16")]
    size = 3
    grads = [coo(HUGE, [0, 5 + r, HUGE - 1 - r, HUGE - 1], r) for r in range(size)]
    expected = torch.cat([g._indices() for g in grads], 1), torch.cat([g._values() for g in grads])
    mean = torch.sparse_coo_tensor(*expected, (HUGE, WIDTH), check_invariants=False).coalesce()
    for report in cluster.run(huge_vocabulary, size, recipes):
        for recipe, (indices, values, sent) in zip(recipes, report, strict=True):
            assert indices == mean.indices()[0].tolist(), recipe
            torch.testing.assert_close(values, mean.values() / size, msg=recipe)
            assert sent < 2_000_000 if "s2" in recipe else sent < 10_000, recipe


def sketched(group, rank, size, seeds):
    """The usual, noisy sketch under many seeds."""
    grad = coo(ROWS, picked(rank, size, 0), rank, torch.float64)
    comm, unit = GroupCommunicator(group), unit_of("s2")
    runners = [StepRunner(comm, None, seed) for seed in range(seeds)]
    return torch.stack([runner.average_rows(unit, grad).to_dense() for runner in runners])


def test_a_sketch_of_rows_is_right_on_average(cluster):
    drawn = cluster.run(sketched, 2, 60)[0]
    exact = sum(coo(ROWS, picked(r, 2, 0), r, torch.float64).to_dense() for r in range(2)) / 2
    error = drawn - exact
    assert error.any(), "nothing was sketched"
    assert not drawn[:, exact.abs().sum(1) == 0].any(), "noise where nobody has a row"
    for direction in (torch.ones_like(exact), exact, exact.sign()):
        projected = (error * direction).sum((1, 2))
        assert abs(projected.mean()) <= 4 * projected.std() / 60**0.5


# ---- state and statistics


def stop_and_go(group, rank, size, recipe):
    def steps(sync, first, last):
        grads = [coo(ROWS, picked(rank, size, s), rank) for s in range(first, last)]
        return [sync.average("e", grad).to_dense() for grad in grads]

    straight = tw.Synchronizer(recipe, group)
    steps(straight, 0, 2)
    file = io.BytesIO()
    torch.save(straight.state_dict(), file)
    loaded = tw.Synchronizer(recipe, group)
    loaded.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    fresh = tw.Synchronizer(recipe, group)
    went_on, resumed, anew = (steps(sync, 2, 4) for sync in (straight, loaded, fresh))
    return went_on, resumed, anew, loaded.stats()["tensors"]["e"]


def test_a_resumed_sketch_goes_on_with_the_same_hashes(cluster):
    for went_on, resumed, anew, stats in cluster.run(stop_and_go, 2, "s2"):
        for one, other, third in zip(went_on, resumed, anew, strict=True):
            assert torch.equal(one, other)
            assert not torch.equal(one, third)
        assert stats["steps"] == 2
        assert stats["numel"] == ROWS * WIDTH
        assert stats["bytes_sent"] > 0
