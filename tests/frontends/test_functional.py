"""One call, no state: the sum over the ranks, in the form the input came in."""

import gc
from datetime import timedelta

import pytest
import torch

import thinwire as tw
from thinwire.frontends import functional
from thinwire.types import Sparse

COLLECTIVES = {
    "topk": "topk(1.0)",
    "topk-dsa": "topk-dsa(1.0)",
    "gtopk": "gtopk(1.0)",
    "ok-topk": "ok-topk(1.0)",
    "omnireduce": "omnireduce(1.0)",
    "union": "union(1.0)",
    "dense": "dense",
}


def everyone(make, size):
    return sum(make(r) for r in range(1, size)) + make(0)


def dense_of(rank):
    return torch.randn(30, 20, generator=torch.Generator().manual_seed(rank))


def elements_of(rank):
    """Some of the elements, others on each rank."""
    dense = dense_of(rank)
    return dense * (dense > 0.5)


def rows_of(rank):
    """Whole rows, as an embedding's gradient has them; row 7 on every rank."""
    dense = torch.zeros(30, 20)
    dense[[rank, 7, 20 + rank]] = dense_of(rank)[:3]
    return dense


def reduced(group, rank, size, recipe, form):
    if form == "dense":
        x, expected = dense_of(rank), everyone(dense_of, size)
        total = tw.sparse_all_reduce(x, recipe, group)
        assert total.shape == x.shape
    elif form == "coo elements":
        x, expected = elements_of(rank).to_sparse(), everyone(elements_of, size)
        total = tw.sparse_all_reduce(x, recipe, group)
        assert total.is_sparse
        assert total.sparse_dim() == 2
        total = total.to_dense()
    elif form == "coo rows":
        x, expected = rows_of(rank).to_sparse(1), everyone(rows_of, size)
        total = tw.sparse_all_reduce(x, recipe, group)
        assert (total.sparse_dim(), total.dense_dim()) == (1, 1)
        total = total.to_dense()
    else:
        flat, expected = elements_of(rank).reshape(-1), everyone(elements_of, size)
        indices = flat.nonzero().squeeze(1)
        total = tw.sparse_all_reduce(Sparse(indices, flat[indices], 600), recipe, group)
        assert isinstance(total, Sparse)
        total = total.to_dense().view(30, 20)
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("form", ["dense", "coo elements", "coo rows", "sparse"])
@pytest.mark.parametrize("recipe", COLLECTIVES.values(), ids=COLLECTIVES)
def test_the_sum_in_the_form_it_came_in(cluster, recipe, form):
    cluster.run(reduced, 3, recipe, form)


def called_otherwise(group, rank, size, about):
    call = {"recipe": "topk(0.1)", "seed": 0, "step": 0, "length": 600}
    if rank:
        call[about] = {"recipe": "union(0.1)", "seed": 1, "step": 1, "length": 599}[about]
    x = torch.randn(call.pop("length"))
    with pytest.raises(tw.DisagreementError, match="ranks disagree on the call") as caught:
        tw.sparse_all_reduce(x, call.pop("recipe"), group, **call)
    return str(caught.value)


@pytest.mark.parametrize("about", ["recipe", "seed", "step", "length"])
def test_ranks_that_call_otherwise_are_refused(cluster, about):
    for said in cluster.run(called_otherwise, 2, about):
        assert "rank 0: Pipeline(" in said
        assert "seed=0, step=0, (600,) torch.float32 torch.strided" in said


def test_alone():
    assert torch.equal(tw.sparse_all_reduce(dense_of(0), "topk(1.0)"), dense_of(0))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_what_float32_would_not_hold_is_refused(dtype):
    """The imaginary part would be lost, and so would be the last digits of large integers."""
    x = torch.arange(6).to(dtype)
    for form in (x, x.to_sparse(), Sparse(torch.arange(6), x, 6)):
        with pytest.raises(tw.RecipeError, match=f"floating point numbers, not {dtype}"):
            tw.sparse_all_reduce(form, "dense")


def kept_before_and_after(group, rank, size):
    """How many communicators are kept as this group comes, and once it has made two calls."""
    gc.collect()
    before = len(functional._communicators)
    for _ in range(2):
        tw.sparse_all_reduce(torch.ones(2000), "topk", group=group)
    return before, len(functional._communicators)


def test_nothing_is_kept_of_a_group_that_is_gone(cluster):
    runs = [cluster.run(kept_before_and_after, 2) for _ in range(3)]  # each in its own group
    assert runs[0] == runs[1] == runs[2]
    assert all(after == before + 1 for before, after in runs[0])


def only_some_come(group, rank, size, recipe):
    """The last rank makes its synchroniser and then does not show up."""
    sync = tw.Synchronizer(recipe, group, timeout=timedelta(seconds=2))
    if rank == size - 1:
        return "absent"
    try:
        sync.runner.run_overlapped(sync.roster.units_for({"w": torch.randn(2000)}))
    except tw.ExchangeError as error:
        return str(error)
    return "nobody noticed"


@pytest.mark.parametrize(("recipe", "name"), [("topk", "AllGather"), ("ok-topk", "OkTopK")])
def test_a_missing_peer_ends_in_an_error_that_names_collective_and_phase(cluster, recipe, name):
    *present, absent = cluster.run(only_some_come, 3, recipe)
    assert absent == "absent"
    for text in present:
        assert f"{name} of 'w', step 0" in text
        assert "over gloo broke off" in text
