"""Links that fail in the middle of a step. Covers lab/lab.py."""

import os
import sys
from collections.abc import Iterator

import pytest

from support.link_faults import FAULTS, break_link, ranks_in
from thinwire.lab import Lab, LabError, unavailable
from thinwire.lab.ranks import Workers

REASON = unavailable()
CASES = list(zip(FAULTS, ["topk", "ok-topk"], strict=True))


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Lab, Workers]]:
    """Three nodes with a rank each."""
    with pytest.MonkeyPatch.context() as patch, Lab(3, None) as lab:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("THINWIRE_DEADLINE_S", "100")  # a rank that hangs says where, and ends
        yield lab, ranks_in(lab)


@pytest.mark.skipif(REASON is not None, reason=f"no lab here: {REASON}")
@pytest.mark.parametrize(("fault", "recipe"), CASES)
def test_all_ranks_raise_and_keep_what_they_had(
    three: tuple[Lab, Workers], fault: str, recipe: str
) -> None:
    lab, ranks = three
    lives = break_link(lab, ranks, fault, 1, recipe)
    for life in lives:
        assert life["raised"].startswith("ExchangeError"), life["raised"]
        assert life["kept"]
    done = [len(life["updates"]) for life in lives]
    assert min(done) >= 2, "they broke off before the link did"
    assert max(done) - min(done) <= 1  # one may have heard all it needed
    assert len({tuple(life["updates"][: min(done)]) for life in lives}) == 1
    if len(set(done)) == 1:
        after = ranks.run({"recipe": recipe, "goes_on": True})
        assert len({answer["update"] for answer in after}) == 1


def test_the_loopback_has_no_links() -> None:
    with Lab(2, loopback=True) as lab, pytest.raises(LabError, match="no links to cut"):
        lab.cut(1)
