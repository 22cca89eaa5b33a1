"""Tensors of a unit as groups, and exact selections by the last step's thresholds."""

import pytest
import torch

from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import TopK
from thinwire.sparsify._groups import groups_of, largest_by_guess
from thinwire.types import Layout, TensorSpec

SIZES = (40, 3, 0, 100, 5)
PAST = (False, True, False, False, True)
NAMES = ("a", "b", "c", "d", "e")


def test_each_tensor_is_a_group_and_what_is_let_past_is_one_more() -> None:
    groups = groups_of(Layout(NAMES, SIZES, PAST, each=True), 148, 0.1, None)
    assert groups.ranges == ((0, 40, 0), (40, 43, 3), (43, 143, 2), (143, 148, 3))
    assert groups.counts == (4, 0, 10, 8)


def test_one_selection_over_all_that_is_not_let_past() -> None:
    groups = groups_of(Layout(NAMES, SIZES, PAST), 148, 0.1, None)
    assert groups.ranges == ((0, 40, 0), (40, 43, 1), (43, 143, 0), (143, 148, 1))
    assert groups.counts == (14, 8)


@pytest.mark.parametrize("each", [False, True])
def test_the_guess_changes_nothing(each: bool) -> None:
    groups = groups_of(Layout(NAMES, SIZES, PAST, each), 148, 0.1, None)
    rows = 3 if each else 1
    state = TopK(0.1).init(TensorSpec("w", 148, torch.float32, torch.device("cpu")))
    state = {key: value.expand(rows).clone() for key, value in state.items()}
    for step in range(4):
        x = torch.randn(148, generator=torch.Generator().manual_seed(step))
        chosen = largest_by_guess(LazySum(x), groups, state)
        fresh = groups_of(Layout(NAMES, SIZES, PAST, each), 148, 0.1, None)
        no_idea = {
            k: torch.full_like(v, torch.inf) if k == "threshold" else v for k, v in state.items()
        }
        again = largest_by_guess(LazySum(x), fresh, no_idea)
        assert torch.equal(chosen.indices, again.indices)
        assert torch.equal(chosen.values, x[chosen.indices])
        assert set(range(40, 43)) | set(range(143, 148)) <= set(chosen.indices.tolist())
