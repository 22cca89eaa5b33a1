"""`explain()` in words: what was given, and where the sketch is not cheaper."""

from datetime import timedelta

import pytest
import torch

import thinwire as tw
from thinwire.auto.chooser import Decision
from thinwire.auto.explain import local_steps

TIMEOUT = timedelta(seconds=15)


def explained(group, rank, size, recipe):
    """A dense gradient and one of rows, through a recipe that was given."""
    sync = tw.Synchronizer(recipe, group, timeout=TIMEOUT)
    rows = torch.sparse_coo_tensor(torch.tensor([[1, 5, rank]]), torch.ones(3, 8), (1000, 8))
    sync.average_all({"dense": torch.ones(64_000), "rows": rows})
    return sync.explain()


def test_a_recipe_that_was_given_was_not_chosen(cluster):
    for text in cluster.run(explained, 2, "topk"):
        assert "given, not chosen" in text
        assert "sketch" not in text


@pytest.mark.parametrize(
    ("ratio", "of_blocks", "of_rows"),
    [(0.5, "take it if those blocks do", "the sketch is cheaper"), (1.5, "union is", "union is")],
)
def test_s2_says_when_union_is_cheaper(cluster, ratio, of_blocks, of_rows):
    text = cluster.run(explained, 2, f"s2(ratio={ratio})")[0].splitlines()
    assert text[2].startswith("dense: the sketch sends")
    assert of_blocks in text[2]
    assert text[3].startswith("rows: the sketch sends")
    assert of_rows in text[3]


@pytest.mark.parametrize(
    ("step", "compute", "says"),
    [
        (0.300, 0.100, "about 33% of such a step; with local steps, which train otherwise"),
        (0.300, 0.100, "95% with an exchange every 38 steps"),
        (0.101, 0.100, "about 99% of such a step: local steps would not pay"),
    ],
)
def test_auto_says_whether_local_steps_pay(step, compute, says):
    decision = Decision(9, "int4", "measured", 0.9, tried={"int4": step}, compute=compute)
    (line,) = local_steps(decision)
    assert says in line


def test_nothing_is_said_of_local_steps_where_the_compute_is_not_known():
    assert local_steps(Decision(9, "int4", "measured", 0.9, tried={"int4": 0.3})) == []
