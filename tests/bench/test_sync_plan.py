"""What `bench sync` would measure, and what it refuses before anything starts.

Covers bench/limits.py.
"""

import pytest

import thinwire as tw
from thinwire.bench.peers import BASELINE, PEERS
from thinwire.bench.sync.run import Settings, plan
from thinwire.errors import ThinwireError
from thinwire.lab import LabError


def test_the_plan_has_every_recipe_and_peer_and_begins_with_dense() -> None:
    cases = plan(Settings(workers=(2, 4), rates=(None,), n=(10, 20)))
    assert {case.recipe for case in cases} == {*tw.recipes(), *PEERS}
    firsts = [case for i, case in enumerate(cases) if not i or cases[i - 1].n != case.n]
    assert len(firsts) == 4 and all(case.recipe == BASELINE for case in firsts)


def test_densities_multiply_only_what_has_one() -> None:
    cases = plan(
        Settings(recipes=("topk", "bf16", "torch-dgc"), density=(0.1, 0.01), rates=(None,))
    )
    found = [(case.recipe, case.density) for case in cases]
    assert found == [
        (BASELINE, None),
        ("topk", 0.1),
        ("topk", 0.01),
        ("bf16", None),
        ("torch-dgc", 0.1),
        ("torch-dgc", 0.01),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(recipes=("no-such-recipe",), rates=(None,)),
        Settings(workers=(3,), nodes=2, rates=(None,)),
        Settings(rates=("fast",)),
        Settings(n=(0,), rates=(None,)),
        Settings(workers=(0,), rates=(None,)),
        Settings(recipes=("topk",), density=(0.01, 2.0), rates=(None,)),
        Settings(n=(10**12,), rates=(None,)),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(settings: Settings) -> None:
    with pytest.raises((ThinwireError, LabError)):
        plan(settings)


def test_links_that_cannot_be_made_are_refused_with_what_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise LabError("no namespaces here")

    monkeypatch.setattr("thinwire.bench.limits.refuse_without_means", refuse)
    with pytest.raises(LabError, match=r"no namespaces here.*--rates none"):
        plan(Settings(rates=(None, "1gbit")))
