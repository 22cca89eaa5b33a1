"""What a rank goes on with: its own state, or at another P its part of all ranks' states.

A state that is not its own is refused on all ranks alike, and leaves each of them as it was.

Covers engine/fits.py.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from thinwire.engine.checkpoint import Restored, restore
from thinwire.engine.fits import Reader
from thinwire.engine.saved import STATE_VERSION, seal

TOPK = tw.recipe("topk", density=0.1, bypass=0)


def saved(rank: int, world: int, **changes: Any) -> dict[str, Any]:
    own = {
        "step": torch.tensor(4),
        "feedback/residual": torch.full((2,), 10.0**rank),
        "feedback/mean_estimate": torch.full((2,), 6.0),
        "feedback/common_square": torch.full((2,), 3.0),
        "sparsifier/threshold": torch.tensor(0.5),
    }
    state = {
        "version": STATE_VERSION, "recipe": repr(TOPK), "seed": 7, "world": world, "rank": rank,
        "node_size": 1, "scale": 0.0, "choice": {"w": "topk"}, "forms": {"w": ["float32", [2]]},
        "buckets": [], "tensors": {"w": own},
    }  # fmt: skip
    return seal(state | changes)


def restored(
    states: Any, rank: int, size: int, lost: Collection[int] = (), **settings: Any
) -> Restored:
    return restore(states, Reader(TOPK, 7, rank, size, **settings), lost=lost)


def test_its_own_state_as_it_was() -> None:
    one = restored(saved(1, 2), 1, 2)
    assert one.choice == {"w": "topk"}
    assert one.tensors["w"]["feedback/residual"].tolist() == [10, 10]
    assert int(one.tensors["w"]["step"]) == 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_at_another_size_residuals_add_up_to_the_same(size: int) -> None:
    states = [saved(rank, 3) for rank in (2, 0, 1)]  # in any order
    for given in (states, {"version": STATE_VERSION, "ranks": states}):
        parts = [restored(given, rank, size).tensors["w"] for rank in range(size)]
        assert sum(part["feedback/residual"][0].item() for part in parts) == 111
        for part in parts:  # the same sum, as a mean over another number of ranks
            assert part["feedback/mean_estimate"][0].item() * size == pytest.approx(6 * 3)
            assert part["feedback/common_square"].tolist() == [3.0, 3.0]
            assert part["sparsifier/threshold"].item() == 0.5


def without_means(rank: int, world: int, **changes: Any) -> dict[str, Any]:
    own = saved(rank, world)["tensors"]["w"]
    kept = {key: value for key, value in own.items() if "mean_" not in key}
    return saved(rank, world, tensors={"w": kept}, **changes)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_without_ranks_that_are_lost_the_others_residuals_add_up_to_the_same(size: int) -> None:
    states = [without_means(rank, 4) for rank in (3, 0, 2)]
    parts = [restored(states, rank, size, lost=[1]).tensors["w"] for rank in range(size)]
    waits = [part["feedback/residual"][0].item() for part in parts]
    assert sum(waits) == 1101 and all(part["feedback/common_square"][0] == 3 for part in parts)
    if size == 4:  # who has a state goes on with it, who comes in the lost one's place has nothing
        assert waits == [1, 0, 100, 1000]
    if size == 3:
        assert waits == [1, 100, 1000]


def test_a_lost_node_of_several_ranks() -> None:
    states = [without_means(rank, 6, node_size=2) for rank in (0, 1, 4, 5)]
    parts = [restored(states, rank, 4, node_size=2, lost={2, 3}).tensors["w"] for rank in (0, 2)]
    assert [part["feedback/residual"][0].item() for part in parts] == [11, 110_000]


@pytest.mark.parametrize("lost", [[0], [1, 2], [7], [1, 1]])
def test_who_is_said_to_be_lost_must_be_who_is_missing(lost: list[int]) -> None:
    with pytest.raises(tw.StateError, match=r"ranks \[0, 2\], and lost=.* all are needed"):
        restored([without_means(0, 3), without_means(2, 3)], 0, 2, lost=lost)


def test_a_mean_of_all_ranks_is_not_known_without_the_lost_ones() -> None:
    with pytest.raises(tw.StateError, match=r"lost=\[1\]: mean_estimate of the state"):
        restored([saved(0, 2)], 0, 1, lost=[1])


@pytest.mark.parametrize(("size", "node_size"), [(4, 2), (6, 2), (6, 3), (2, 1), (4, 4)])
def test_what_waits_goes_to_ranks_that_keep_a_state(size: int, node_size: int) -> None:
    steps = {"w": {"step": torch.tensor(4)}}
    states = [
        saved(rank, 8, node_size=2, **({"tensors": steps} if rank % 2 else {})) for rank in range(8)
    ]
    keepers = range(0, size, node_size)
    for given in (states, states[::-1]):  # also where the first in the list has nothing
        parts = [restored(given, rank, size, node_size=node_size).tensors["w"] for rank in keepers]
        assert sum(part["feedback/residual"][0].item() for part in parts) == 1010101


def test_where_the_first_of_a_node_is_lost_the_other_nodes_keep_what_waits() -> None:
    steps = {"w": {"step": torch.tensor(4)}}
    states = [
        without_means(2, 4, node_size=2),
        *(saved(rank, 4, node_size=2, tensors=steps) for rank in (1, 3)),
    ]
    for given in (states, states[::-1]):
        own = restored(given, 0, 1, lost=[0]).tensors["w"]
        assert own["feedback/residual"].tolist() == [100, 100]


@pytest.mark.parametrize(("saved_by", "here"), [(1, 2), (2, 1), (2, 4)])
def test_at_another_size_of_nodes_its_own_state_is_not_enough(saved_by: int, here: int) -> None:
    """The first of a node keeps what waits: on the others it would never be sent."""
    says = f"nodes of {saved_by} ranks.*here of {here}: pass the list"
    with pytest.raises(tw.StateError, match=says):
        restored(saved(1, 4, node_size=saved_by), 1, 4, node_size=here)


AT_ONE = {"step": torch.tensor(1)}
ONE_NAN = AT_ONE | {"feedback/residual": torch.tensor([1.0, torch.nan])}
FOREIGN = {
    "version": (saved(0, 1, version=99), f"state version 99, expected {STATE_VERSION}"),
    "world": (saved(0, 3), "saved by 3 ranks and this group has 1"),
    "rank": (saved(1, 1), "saved by rank 1 and this is rank 0"),
    "recipe": (saved(0, 1, recipe="dense"), r"by another recipe,\s+dense\s+and this is\s+Pipeline"),
    "seed": (saved(0, 1, seed=8), "seed 8, this is 7"),
    "cut off": ({k: v for k, v in saved(0, 1).items() if k != "tensors"}, "'tensors' .* missing"),
    "altered": (saved(0, 1) | {"scale": 2.0}, "altered since it was saved"),
    "other names": (saved(0, 1, forms={"v": ["float32", [2]]}), "no v; it has no w"),
    "shape": (saved(0, 1, forms={"w": ["float32", [1, 2]]}), r"'w' was saved as .*\[1, 2\]"),
    "dtype": (saved(0, 1, forms={"w": ["float16", [2]]}), "'w' was saved as .*'float16'"),
    "NaN": (saved(0, 1, tensors={"w": ONE_NAN}), "'feedback/residual' of 'w' has NaN or Inf"),
    "half": (
        saved(0, 1, tensors={"w": AT_ONE | {"feedback/residual": torch.ones(2).half()}}),
        "is torch.float16, not float32",
    ),
    "longer": (
        saved(0, 1, tensors={"w": AT_ONE | {"feedback/residual": torch.ones(3)}}),
        "has 3 elements, the tensor 2",
    ),
    "no step": (saved(0, 1, tensors={"w": {}}), "has the step None"),
    "no state": ("model.pt", "no state that thinwire saved: str"),
    "nobody": ([], "all are needed"),
    "some ranks": ([saved(0, 3), saved(2, 3)], r"all are needed.*lost=\[…\]"),
    "one twice": ([saved(0, 3), saved(0, 3), saved(1, 3)], "all are needed"),
    "an older save": (
        [saved(0, 2), saved(1, 2, tensors={"w": {"step": torch.tensor(3)}})],
        r"different saves:\n  rank 0: 1 tensors at step 4.*\n  rank 1: 1 tensors at step 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_not_its_own_is_refused_with_what_differs(what: str) -> None:
    state, says = FOREIGN[what]
    with pytest.raises(tw.StateError, match=says):
        restored(state, 0, 1, forms={"w": ["float32", [2]]}, knows_all=True)


def test_another_recipe_takes_along_what_waits() -> None:
    other = replace(TOPK, sparsifier=tw.recipe("gaussiank").sparsifier)
    own = AT_ONE | {"feedback/residual": torch.ones(2), "sparsifier/x": torch.ones(3)}
    states = [saved(0, 1, tensors={"w": own})]
    taken = restore(states, Reader(other, 7), recipe_changed=True).tensors["w"]
    assert taken.keys() == {"step", "feedback/residual"}
    with pytest.raises(tw.StateError, match="keeps feedback/residual, feedback/velocity: it would"):
        restore(states, Reader(tw.recipe("dgc"), 7), recipe_changed=True)
    with pytest.raises(tw.StateError, match=re.escape("NoFeedback() keeps nothing: it would")):
        restore(states, Reader(tw.recipe("dense"), 7), recipe_changed=True)


# Loads by real ranks.


def open_sync(recipe: Any, group: Any, **settings: Any) -> tw.Synchronizer:
    return tw.Synchronizer(recipe, group, timeout=timedelta(seconds=30), **settings)


def grads(rank: int, step: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(100 * step + rank)
    return {name: torch.randn(600, generator=random) for name in ("a", "b")}


def waiting(sync: tw.Synchronizer) -> Any:
    return sync.state_dict()["checksum"]


def refusals(group: Any, rank: int, size: int, recipe: Any) -> list[tuple[str, bool]]:
    """What is said of each load that only one rank has reason to refuse, and what it left."""
    sync = open_sync(recipe, group)
    older = {}
    for step in range(4):
        sync.average_all(grads(rank, step))
        if step == 1:
            older = sync.state_dict()
    now, of_all = sync.state_dict(), sync.state_dict(gather=True)["ranks"]
    damaged = now | {"tensors": {}}
    loads = [of_all[0], older if rank == 1 else now, damaged if rank == 1 else now]
    said = []
    for state in loads:
        before = waiting(sync)
        try:
            sync.load_state_dict(state)
        except tw.ThinwireError as error:
            said.append((f"{type(error).__name__}: {error}", waiting(sync) == before))
    sync.average_all(grads(rank, 4))
    return said


@pytest.mark.parametrize("recipe", ["topk", "ok-topk", "auto", "s2"])
def test_what_one_rank_refuses_all_do_and_nothing_is_left_of_it(cluster: Any, recipe: str) -> None:
    for of_rank_0, older, damaged in cluster.run(refusals, 2, tw.recipe(recipe, bypass=0)):
        assert of_rank_0[0].startswith("DisagreementError: ranks disagree on the saved state")
        assert "rank 1: refused: the state was saved by rank 0 and this is rank 1" in of_rank_0[0]
        assert re.search(r"rank 0: 2 tensors at step 4.*\n.*rank 1: 2 tensors at step 2", older[0])
        assert "rank 1: refused: the state was altered since it was saved" in damaged[0]
        assert all(kept for _, kept in (of_rank_0, older, damaged))


def skewed(group: Any, rank: int, size: int) -> str:
    sync = open_sync("s2", group)
    sync.average_all(grads(rank, 0))
    for unit in sync.roster.units.values():
        unit.step += 5 * rank
    try:
        sync.average_all(grads(rank, 1))
    except tw.DisagreementError as error:
        return str(error)
    return "nobody noticed"


def test_ranks_at_different_steps_are_told(cluster: Any) -> None:
    for said in cluster.run(skewed, 2):
        assert "rank 0: a: (600,) torch.float32 torch.strided, step 1" in said
        assert "rank 1: a: (600,) torch.float32 torch.strided, step 6" in said


def skewed_under_ddp(group: Any, rank: int, size: int) -> str:
    ddp = DDP(torch.nn.Linear(60, 60), process_group=group)
    handle = tw.compress(ddp, "s2", timeout=timedelta(seconds=30))
    ddp(torch.ones(60)).sum().backward()
    for unit in handle.synchronizer.roster.units.values():
        unit.step += 5 * rank
    try:
        ddp(torch.ones(60)).sum().backward()
    except tw.DisagreementError as error:
        return str(error)
    return "nobody noticed"


def test_ranks_at_different_steps_are_told_under_ddp(cluster: Any) -> None:
    for said in cluster.run(skewed_under_ddp, 2):
        assert re.search(r"disagree on the step:\n  rank 0: \d+ steps of units\n  rank 1: ", said)


def gathered(group: Any, rank: int, size: int) -> tuple[dict[str, Any], float]:
    sync = open_sync(TOPK, group)
    sync.average_all(grads(rank, 0))
    mine, everyone = sync.state_dict(), sync.state_dict(gather=True)
    assert everyone["ranks"][rank]["checksum"] == mine["checksum"]
    fresh = open_sync(TOPK, group)
    fresh.load_state_dict(everyone)
    assert waiting(fresh) == mine["checksum"]
    return everyone, float(mine["tensors"]["a"]["feedback/residual"].sum())


def resumed(group: Any, rank: int, size: int, everyone: dict[str, Any]) -> float:
    sync = open_sync(TOPK, group)
    sync.load_state_dict(everyone)
    return float(sync.state_dict()["tensors"]["a"]["feedback/residual"].sum())


def test_all_ranks_states_in_one_go_on_at_any_size(cluster: Any) -> None:
    results = cluster.run(gathered, 3)
    everyone, total = results[0][0], sum(waits for _, waits in results)
    assert [s["checksum"] for s in everyone["ranks"]] == [
        s["checksum"] for s in results[2][0]["ranks"]
    ]
    for size in (2, 3, 4):
        assert sum(cluster.run(resumed, size, everyone)) == pytest.approx(total, abs=1e-4)


def test_a_tensor_that_travelled_whole_may_join_one_that_did_not() -> None:
    """`auto` sends one bucket sparse and another dense, and DDP's first buckets mix them."""
    recipe = tw.recipe("auto", bypass=0)
    tensors = {
        "a": {"step": torch.tensor(9), "feedback/residual": torch.ones(5000)},
        "b": {"step": torch.tensor(9)},
    }
    sync = tw.Synchronizer(recipe)
    forms = {name: ["float32", [5000]] for name in tensors}
    of_auto = {"recipe": repr(recipe), "seed": 0, "choice": {"a": "topk"}, "forms": forms}
    state = saved(0, 1, **of_auto, tensors=tensors)
    sync.load_state_dict(state)
    means = sync.average_all({name: torch.zeros(5000) for name in tensors})
    left = sync.state_dict()["tensors"]
    waits = left["a"].get("feedback/residual", torch.zeros(5000))
    assert torch.equal(means["a"] + waits, torch.ones(5000))
    assert not means["b"].any()
