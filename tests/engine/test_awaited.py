"""What waits in a loaded state and is never averaged again is told as soon as one can know."""

from datetime import timedelta
from typing import Any

import pytest
import torch

import thinwire as tw

TOPK = tw.recipe("topk", density=0.1, bypass=0)


def grads(names: str, step: int = 0, rank: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(100 * step + rank)
    return {name: torch.randn(600, generator=random) for name in names}


def after(*steps: str, recipe: tw.Pipeline = TOPK) -> dict[str, Any]:
    """The state after steps with tensors of these names."""
    sync = tw.Synchronizer(recipe)
    for step, names in enumerate(steps):
        sync.average_all(grads(names, step))
    return sync.state_dict()


def loaded(state: dict[str, Any], recipe: tw.Pipeline = TOPK) -> tw.Synchronizer:
    sync = tw.Synchronizer(recipe)
    sync.load_state_dict(state)
    return sync


def test_tensors_of_other_names_are_told_and_nothing_is_lost() -> None:
    saved = after("ab", "ab")
    sync = loaded(saved)
    sync.average_all(grads("ac", 2))  # `b` may come by itself
    before = sync.state_dict()
    for _ in range(2):
        with pytest.raises(tw.StateError, match="not averaged: b; averaged and not saved: c"):
            sync.average_all(grads("ac", 3))
        assert sync.state_dict()["checksum"] == before["checksum"]
    waits = saved["tensors"]["b"]["feedback/residual"]
    assert torch.equal(before["tensors"]["b"]["feedback/residual"], waits)
    sync.average("b", torch.zeros(600))
    sync.average_all(grads("ac", 3))
    sync.average_all(grads("ac", 4))


def test_a_tensor_that_is_left_out_is_told() -> None:
    sync = loaded(after("ab"))
    sync.average("a", grads("a", 1)["a"])
    with pytest.raises(tw.StateError, match="saved and not averaged: b "):
        sync.average("a", grads("a", 2)["a"])


def test_tensors_may_come_one_by_one_and_new_ones_among_them() -> None:
    sync = loaded(after("ab"))
    for step in (1, 2):
        for name in "cab":
            sync.average(name, grads(name, step)[name])


def test_what_was_left_out_before_the_save_may_be_so_after_it() -> None:
    sync = loaded(after("ab", "a"))
    for step in (2, 3, 4):
        sync.average_all(grads("a", step))


def test_where_nothing_waits_nothing_can_be_lost() -> None:
    dense = tw.recipe("dense")
    whole = tw.recipe("topk", density=1.0, bypass=0)
    for recipe in (dense, whole):
        sync = loaded(after("ab", recipe=recipe), recipe)
        for step in (1, 2):
            sync.average_all(grads("ac", step))


def test_the_next_load_counts_for_itself() -> None:
    sync = loaded(after("ab"))
    sync.average_all(grads("a", 1))
    sync.load_state_dict(after("ac"))
    sync.average_all(grads("ac", 1))
    sync.average_all(grads("ac", 2))


def on_one_rank(group: Any, rank: int, size: int) -> str:
    """Only rank 1 has something that waits; a group in which all were told goes on."""
    sync = tw.Synchronizer(TOPK, group, timeout=timedelta(seconds=30))
    sync.average_all({n: g * rank for n, g in grads("ab").items()})
    state = sync.state_dict()
    assert bool(state["tensors"]["b"]["feedback/residual"].any()) == bool(rank)
    sync.load_state_dict(state)
    sync.average_all(grads("ac", 1, rank))
    try:
        sync.average_all(grads("ac", 2, rank))
    except tw.StateError as error:
        sync.average_all(grads("bc", 2, rank))
        return str(error)
    return "nobody noticed"


def test_what_waits_on_one_rank_is_told_on_all(cluster: Any) -> None:
    for said in cluster.run(on_one_rank, 2):
        assert "saved and not averaged: b; averaged and not saved: c" in said
