"""A group that changes: who stays keeps what waits, who joins has none. Steps taken back."""

from datetime import timedelta

import pytest
import torch
from torch.distributed import distributed_c10d as c10d

import thinwire as tw
from support.contracts.cases import state_digest
from thinwire.comm import GroupCommunicator
from thinwire.engine import regroup
from thinwire.engine.saved import pack, unpack

TIMEOUT = timedelta(seconds=15)
RECIPES = {
    "residual": "topk(0.1) | raw | allgather | residual",
    "momentum": "topk(0.1) | raw | gtopk | momentum",
    "ef21": "topk(0.1) | raw | allgather | ef21",
    "adam": "topk(0.1) | raw | allgather | adam(refresh=2)",
    "low rank": "everything | none | lowrank | residual",
}


def group_of(members, rank, name):
    store = c10d._get_default_store()
    return GroupCommunicator.at_store(store, name, members.index(rank), len(members), TIMEOUT)


def gradients(step, rank):
    g = torch.Generator().manual_seed(100 * step + rank)
    return {"w": torch.randn(40, 30, generator=g), "b": torch.randn(50, generator=g)}


def waiting(sync, kind):
    """What this rank has of its own, or of what all share, added up in one tensor."""
    keys = {"own": ("residual", "estimate", "velocity"), "mean": ("mean_estimate",)}[kind]
    kept = (
        one.get(f"feedback/{key}") for one in sync.state_dict()["tensors"].values() for key in keys
    )
    return torch.cat([torch.zeros(0), *(x.flatten() for x in kept if x is not None)])


# What the ranks do.


def join_and_leave(group, rank, size, recipe):
    """Ranks 0 and 1 begin, 2 joins, 0 leaves; the last update, and own state at each change."""
    pipeline = tw.recipe(recipe)
    everyone = GroupCommunicator(group, TIMEOUT)
    begins = rank < 2
    first = group_of([0, 1], rank, "first") if begins else group_of([2], 2, "alone")
    sync = tw.Synchronizer(pipeline, comm=first)
    for step in range(3) if begins else ():
        sync.average_all(gradients(step, rank))
    before = waiting(sync, "own")
    ships = pack(sync.shared_state()) if rank == 0 else torch.zeros(0, dtype=torch.uint8)
    shipped = everyone.gather(ships)[0]
    if not begins:
        sync.load_shared_state(unpack(shipped))
    sync.reconfigure(group_of([0, 1, 2], rank, "all"))
    kept = waiting(sync, "own")
    update = sync.average_all(gradients(3, rank))
    means = [waiting(sync, "own"), waiting(sync, "mean"), update["w"].clone()]
    if rank == 0:
        return before, kept, means, None
    sync.reconfigure(group_of([1, 2], rank, "last"))
    return before, kept, means, sync.average_all(gradients(4, rank))["w"]


def taken_back(group, rank, size, recipe):
    sync = tw.Synchronizer(tw.recipe(recipe), group, timeout=TIMEOUT)
    sync.take_back()  # nothing yet
    sync.average_all(gradients(0, rank))
    before = state_digest(sync)
    once = sync.average_all(gradients(1, rank))["w"].clone()
    sync.take_back()
    sync.take_back()  # once is all there is
    after = state_digest(sync)
    return before == after, torch.equal(once, sync.average_all(gradients(1, rank))["w"])


def joins_with_nothing(group, rank, size):
    begins = rank == 0
    sync = tw.Synchronizer("topk(0.1)", comm=group_of([rank], rank, f"alone {rank}"))
    if begins:
        sync.average_all(gradients(0, rank))
    sync.reconfigure(group_of([0, 1], rank, "both"))


def breaks_off(group, rank, size, agreements):
    """Rank 1 goes after so many of them: whether rank 0 has all it had, and goes on in a third."""
    sync = tw.Synchronizer(RECIPES["ef21"], comm=group_of([0, 1], rank, "both"))
    for step in range(2):
        sync.average_all(gradients(step, rank))
    before, second = state_digest(sync), group_of([0, 1], rank, "again")
    if rank == 1:
        words = [("the recipe or the seed", sync._settings)]
        words.append(("what ranks share", regroup.in_words(regroup.alone(sync.state_dict()))))
        for what, text in words[:agreements]:
            second.agree(what, text)
        second.close()
        return None
    with pytest.raises(tw.ExchangeError):
        sync.reconfigure(second)
    kept = state_digest(sync) == before
    second.close()
    sync.reconfigure(group_of([0], rank, "by itself"))
    waits = waiting(sync, "own")
    sync.average_all(gradients(2, rank))
    return kept, bool(waits.any())


def disagrees(group, rank, size):
    """Whether each has what it had before."""
    sync = tw.Synchronizer("topk(0.1)", comm=group_of([rank], rank, f"alone {rank}"))
    for step in range(1 + rank):
        sync.average_all(gradients(step, rank))
    before = state_digest(sync)
    with pytest.raises(tw.DisagreementError, match="what ranks share"):
        sync.reconfigure(group_of([0, 1], rank, "both"))
    return state_digest(sync) == before


def without_a_copy(group, rank, size):
    sync = tw.Synchronizer("topk(0.1)", group, undo=False)
    for step in range(2):
        sync.average_all(gradients(step, rank))
    sync.take_back()


# The tests.


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_who_stays_keeps_what_waits_and_who_joins_has_none(cluster, recipe):
    ranks = cluster.run(join_and_leave, 3, recipe)
    for rank, (before, kept, _, _) in enumerate(ranks):
        assert torch.equal(kept, before) if rank < 2 else not kept.any()
    assert any(before.any() for before, *_ in ranks)
    updates = [means[2] for *_, means, _ in ranks]
    assert all(torch.equal(update, updates[0]) for update in updates)
    assert torch.equal(ranks[1][3], ranks[2][3])  # without rank 0


def test_means_are_those_of_the_ranks_that_there_are(cluster):
    """EF21 sends how a gradient changed against estimates whose mean all ranks know."""
    ranks = cluster.run(join_and_leave, 3, RECIPES["ef21"])
    estimates = torch.stack([means[0] for *_, means, _ in ranks]).mean(0)
    for *_, means, _ in ranks:
        torch.testing.assert_close(means[1], estimates)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_step_that_is_taken_back_was_never_made(cluster, recipe):
    assert cluster.run(taken_back, 2, recipe) == [(True, True)] * 2


def test_who_joins_without_what_ranks_share_is_told(cluster):
    for raised in cluster.run(joins_with_nothing, 2, expect=tw.DisagreementError):
        assert "ranks disagree on what ranks share" in raised.text and "'w': 1" in raised.text


@pytest.mark.parametrize("agreements", [0, 1, 2])
def test_a_change_that_breaks_off_leaves_all_that_waits(cluster, agreements):
    assert cluster.run(breaks_off, 2, agreements)[0] == (True, True)


def test_ranks_at_different_steps_keep_what_they_have(cluster):
    assert cluster.run(disagrees, 2) == [True, True]


def test_without_copies_nothing_is_taken_back(cluster):
    for raised in cluster.run(without_a_copy, 2, expect=tw.StateError):
        assert "undo=False" in raised.text
