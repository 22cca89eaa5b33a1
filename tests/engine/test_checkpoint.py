"""What a rank goes on with: its own state, or at another P its part of all ranks' states."""

from typing import Any

import pytest
import torch

from thinwire.engine.checkpoint import STATE_VERSION, restore
from thinwire.errors import RecipeError


class Group:
    """All that `restore` asks of a communicator."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def saved(rank: int, world: int) -> dict[str, Any]:
    state = {
        "step": torch.tensor(4),
        "feedback/residual": torch.full((2,), 10.0**rank),
        "feedback/mean_estimate": torch.full((2,), 6.0),
        "sparsifier/threshold": torch.tensor(0.5),
    }
    return {
        "version": STATE_VERSION, "world": world, "rank": rank, "seed": 7,
        "choice": {"w": "topk"}, "tensors": {"w": state},
    }  # fmt: skip


def test_its_own_state_as_it_was() -> None:
    restored = restore(saved(1, 2), Group(1, 2))  # type: ignore[arg-type]
    assert (restored.seed, restored.choice) == (7, {"w": "topk"})
    assert restored.tensors["w"]["feedback/residual"].tolist() == [10, 10]
    assert int(restored.tensors["w"]["step"]) == 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_at_another_size_residuals_add_up_to_the_same(size: int) -> None:
    states = [saved(rank, 3) for rank in (2, 0, 1)]  # in any order
    parts = [restore(states, Group(rank, size)).tensors["w"] for rank in range(size)]  # type: ignore[arg-type]
    assert sum(part["feedback/residual"][0].item() for part in parts) == 111
    for part in parts:  # the same sum, as a mean over another number of ranks
        assert part["feedback/mean_estimate"][0].item() * size == pytest.approx(6 * 3)
        assert part["sparsifier/threshold"].item() == 0.5


def test_one_state_at_another_size_is_refused() -> None:
    with pytest.raises(RecipeError, match="saved by 3 ranks and this group has 2"):
        restore(saved(0, 3), Group(0, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [[], [0, 2], [0, 0, 1]])
def test_a_list_that_lacks_a_rank_is_refused(ranks: list[int]) -> None:
    with pytest.raises(RecipeError, match="all are needed"):
        restore([saved(rank, 3) for rank in ranks], Group(0, 2))  # type: ignore[arg-type]


def test_another_version_is_refused() -> None:
    with pytest.raises(RecipeError, match=f"state version 99, expected {STATE_VERSION}"):
        restore(saved(0, 1) | {"version": 99}, Group(0, 1))  # type: ignore[arg-type]
