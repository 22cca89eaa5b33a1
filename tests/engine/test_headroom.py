"""Finite gradients whose sum is not finite: told of before anything is lost."""

import pytest
import torch

import thinwire as tw
from support.contracts.cases import state_digest
from support.contracts.ranks import TIMEOUT

THAT_WAIT = ("topk(0.01)", "dgc(0.01)", "randomk(0.01)")
AS_THEY_ARE = ("sketchml", "dragonn", "deepreduce")
LARGEST = torch.finfo(torch.float32).max


def until_refused(recipe, grad, group=None, **settings):
    """Steps of one gradient: how many went well, what was raised, and if the state stayed."""
    sync = tw.Synchronizer(tw.recipe(recipe, bypass=10), group, **settings)
    for step in range(8):
        before = state_digest(sync)
        try:
            update = sync.average("w", grad.clone())
        except tw.NonFiniteError as error:
            return step, str(error), state_digest(sync) == before
        assert update.isfinite().all()
        state = sync.state_dict()["tensors"]["w"]
        assert all(value.isfinite().all() for value in state.values())
    return 8, "", True


@pytest.mark.parametrize("recipe", THAT_WAIT)
def test_float16_does_not_overflow_silently(recipe):
    steps, said, kept = until_refused(recipe, torch.full((5000,), 30000.0, dtype=torch.float16))
    assert 1 <= steps < 4
    assert "w (with what waits too large for torch.float16)" in said
    assert kept


@pytest.mark.parametrize("recipe", [*THAT_WAIT, "ok-topk(0.01)", *AS_THEY_ARE])
def test_nor_does_float32(recipe):
    steps, said, kept = until_refused(recipe, torch.full((5000,), 1.5e38))
    assert 1 <= steps < 4
    assert "too large for torch.float32" in said
    assert kept


@pytest.mark.parametrize("recipe", ["topk(0.1) | raw | allgather | adam", "s2"])
def test_nor_do_squares_nor_sums_of_many_elements(recipe):
    assert until_refused(recipe, torch.full((5000,), 1e18))[0] == 8
    steps, said, kept = until_refused(recipe, torch.full((5000,), 1e38))
    assert steps == 0
    assert "too large for torch.float32" in said
    assert kept


def largest_on_each(group, rank, size, recipe):
    return until_refused(recipe, torch.full((5000,), LARGEST), group, timeout=TIMEOUT)


@pytest.mark.parametrize("recipe", ["topk(0.01)", "dgc(0.01)", "deepreduce", "signsgd"])
def test_nor_does_the_sum_over_the_ranks(cluster, recipe):
    for steps, said, kept in cluster.run(largest_on_each, 2, recipe):
        assert steps == 0
        assert "rank 0, 1" in said
        assert kept


def largest_rows_on_each(group, rank, size, recipe):
    """Of a sparse gradient; and whether smaller ones are averaged."""
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)

    def rows(value):
        values = torch.full((2, 3), value)
        return torch.sparse_coo_tensor([[0, 2]], values, (4, 3), check_invariants=False)

    with pytest.raises(tw.NonFiniteError, match="too large"):
        sync.average("rows", rows(LARGEST))
    return bool(sync.average("rows", rows(1e15)).coalesce().values().isfinite().all())


@pytest.mark.parametrize("recipe", ["dense", "parallax", "dense(coo='sketch-allreduce')"])
def test_nor_does_the_sum_of_rows(cluster, recipe):
    assert cluster.run(largest_rows_on_each, 2, recipe) == [True, True]


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-40, -5e-324, 3e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("recipe", ["topk(0.01)", "dgc(0.01)", "ok-topk(0.01)", "qsgd"])
def test_zeros_constants_and_denormals_are_like_other_numbers(recipe, value, dtype):
    assert until_refused(recipe, torch.full((5000,), value, dtype=dtype))[0] == 8


def test_a_loaded_state_is_looked_at():
    recipe = tw.recipe("topk", density=0.01, bypass=10)
    sync = tw.Synchronizer(recipe)
    sync.average("w", torch.full((5000,), 3e38))
    other = tw.Synchronizer(recipe)
    other.load_state_dict(sync.state_dict())
    with pytest.raises(tw.NonFiniteError, match="too large"):
        other.average("w", torch.full((5000,), 3e38))
    other.average("w", torch.full((5000,), 1.0))
