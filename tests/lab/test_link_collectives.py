"""A link is cut, or as slow as 1 Mbit/s, in a step of every collective. Covers lab/lab.py."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thinwire as tw
from contracts.test_law_9_whole_steps import EACH_COLLECTIVE as RECIPES
from support.link_collectives import QUICK, SLOW, break_link, ranks_in
from thinwire.lab import Lab, unavailable
from thinwire.lab.ranks import Workers

REASON = unavailable()
CASES = [("cut link", SLOW), ("link at 1 Mbit/s", SLOW), ("link at 1 Mbit/s", QUICK)]
SAYS = re.compile(
    r"ExchangeError: (?P<collective>\w+) of '[^']+', step 1: rank \d of 3: "
    r"(?P<phase>[\w -]+) over gloo broke off \((?P<peer>rank \d|a peer) died, gave up, or did not"
)


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Lab, Workers]]:
    """Three nodes with a rank each."""
    with pytest.MonkeyPatch.context() as patch, Lab(3, None) as lab:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("THINWIRE_DEADLINE_S", "200")  # a rank that hangs says where, and ends
        yield lab, ranks_in(lab)


def wrong_with(recipe: str, fault: str, tells: list[dict[str, Any]]) -> str:
    """With what the ranks tell of a step; over a slow link it may come to its end."""
    collective = type(tw.recipe(recipe).collective).__name__
    for rank, life in enumerate(tells):
        if fault != "cut link" and life["right"]:
            continue
        said = SAYS.match(life["raised"])
        if said is None or said["collective"] != collective:
            return f"rank {rank} says {life['raised'] or 'nothing'!r}"
        if not life["kept"]:
            return f"rank {rank} has another state than before the step"
    return ""


@pytest.mark.skipif(REASON is not None, reason=f"no lab here: {REASON}")
@pytest.mark.parametrize(("fault", "numel"), CASES)
def test_in_every_collective_all_raise_and_keep_what_they_had(
    three: tuple[Lab, Workers], fault: str, numel: int, tmp_path: Path
) -> None:
    lab, ranks = three
    answers = break_link(lab, ranks, fault, RECIPES, numel, tmp_path)
    of = {recipe: [answer["of"][recipe] for answer in answers] for recipe in RECIPES}
    wrong = {recipe: said for recipe in RECIPES if (said := wrong_with(recipe, fault, of[recipe]))}
    assert wrong == {}
    assert [answer["threads"] for answer in answers] == [0, 0, 0]
    assert all(bool(life["raised"]) == (numel == SLOW) for life in of["dense"])
    # One may have heard all it needed, and is a step ahead.
    alike = [r for r in RECIPES if len({bool(life["raised"]) for life in of[r]}) == 1]
    after = ranks.run({"recipes": alike, "numel": numel, "goes_on": True})
    updates = [answer["updates"] for answer in after]
    assert updates == [updates[0]] * 3
