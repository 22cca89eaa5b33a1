"""Ok-Topk's reused threshold: when it is evaluated, and what it lets through."""

import math

import pytest
import torch
from torch import Tensor

from support.sparsify import DEVICES, at, draw, left_out, select, spec_of
from thinwire.errors import RecipeError
from thinwire.sparsify import ReusedThreshold, TopK
from thinwire.types import Sparse, State

N, DENSITY, K = 50_000, 0.01, 500


def plain(cap: float = 2.0) -> ReusedThreshold:
    """The paper's rule: no early evaluation."""
    return ReusedThreshold(DENSITY, low=0.0, high=math.inf, cap=cap)


def run(
    sparsifier: ReusedThreshold, xs: list[Tensor], first: int = 0
) -> tuple[list[Sparse], list[int]]:
    """The selections of these steps, and the steps that evaluated the threshold."""
    state: State = sparsifier.init(spec_of(xs[0]))
    selections, evaluated = [], set()
    for step, x in enumerate(xs, first):
        selections.append(sparsifier.select(x, state, at(step)))
        evaluated.add(int(state["evaluated_at"]))
    return selections, sorted(evaluated - {-1})


def test_the_threshold_is_evaluated_once_an_interval() -> None:
    xs = [draw("normal", N, step) for step in range(20)]
    selections, evaluated = run(ReusedThreshold(DENSITY, interval=8), xs, first=3)
    assert evaluated == [3, 11, 19]
    for step in evaluated:
        exact = select(TopK(DENSITY), xs[step - 3])
        assert torch.equal(selections[step - 3].indices, exact.indices)
    assert any(s.count != K for s in selections), "reused thresholds do not hit k exactly"


def test_in_between_it_is_the_same_threshold_for_other_gradients() -> None:
    xs = [draw("normal", N, step) for step in range(4)]
    selections, _ = run(ReusedThreshold(DENSITY), xs)
    threshold = selections[0].values.abs().min()
    for x, chosen in zip(xs[1:], selections[1:], strict=True):
        assert torch.equal(chosen.indices, (x.abs() >= threshold).nonzero().flatten())


@pytest.mark.parametrize("device", DEVICES)
def test_ramping_residuals_are_followed_by_early_evaluations(device: str) -> None:
    """Accumulated gradients of a first few steps: plain reuse lets many times k through."""
    grads = [draw("normal", N, step, device=device) for step in range(12)]

    def accumulate(sparsifier: ReusedThreshold) -> list[int]:
        residual = torch.zeros(N, device=device)
        state, counts = sparsifier.init(spec_of(residual)), []
        for step, grad in enumerate(grads):
            residual += grad
            chosen = sparsifier.select(residual, state, at(step))
            residual[chosen.indices] = 0
            counts.append(chosen.count)
        return counts

    if device == "cpu":  # a GPU takes exactly k in every step
        assert max(accumulate(plain(cap=1000))) > 8 * K
    followed = accumulate(ReusedThreshold(DENSITY))
    assert all(0.75 * K <= count <= 1.25 * K for count in followed)


@pytest.mark.parametrize("scale", [0.01, 0.8, 1.3, 100.0])
def test_a_drift_either_way_evaluates_in_the_same_step(scale: float) -> None:
    xs = [draw("normal", N), scale * draw("normal", N, 1)]
    (_, chosen), evaluated = run(ReusedThreshold(DENSITY), xs)
    assert evaluated == [0, 1]
    assert torch.equal(chosen.indices, select(TopK(DENSITY), xs[1]).indices)


def test_the_cap_keeps_the_largest_of_those_that_passed() -> None:
    xs = [draw("normal", N), 2 * draw("normal", N, 1)]
    (_, chosen), evaluated = run(plain(cap=1.5), xs)
    assert evaluated == [0], "the cap does not evaluate"
    assert chosen.count == 1.5 * K
    assert chosen.values.abs().min() >= left_out(xs[1], chosen).max()


def test_an_infinite_cap_is_none() -> None:
    xs = [draw("normal", N), 2 * draw("normal", N, 1)]
    (_, chosen), evaluated = run(plain(cap=math.inf), xs)
    assert evaluated == [0]
    assert chosen.count > 2 * K
    reached = xs[1].abs() >= select(TopK(DENSITY), xs[0]).values.abs().min()
    assert torch.equal(chosen.indices, reached.nonzero().flatten())


def test_the_cap_holds_against_ties_and_zeros() -> None:
    xs = [draw("constant", N), draw("constant", N), draw("zeros", N), draw("zeros", N)]
    for sparsifier in (plain(), ReusedThreshold(DENSITY)):
        selections, _ = run(sparsifier, xs)
        assert [s.count <= 2 * K for s in selections] == [True] * 4


def test_a_gradient_of_zeros_sets_no_threshold() -> None:
    xs = [draw("zeros", N), draw("normal", N, 1), draw("normal", N, 2)]
    selections, evaluated = run(plain(), xs)
    assert evaluated == [1]
    assert selections[1].count == K


def test_a_schedule_that_lowers_the_density_is_followed_at_once() -> None:
    sparsifier, x = ReusedThreshold(0.001), draw("normal", N)
    state = sparsifier.init(spec_of(x))
    counts = [
        sparsifier.select(x, state, at(step, density=density)).count
        for step, density in enumerate([0.25, 0.0725, 0.015, 0.004, None])
    ]
    assert counts == [12_500, 3625, 750, 200, 50]


def test_state_from_a_later_step_of_another_run_is_not_trusted() -> None:
    sparsifier = plain()
    state = sparsifier.init(spec_of(draw("normal", N)))
    sparsifier.select(draw("normal", N), state, at(1000))
    sparsifier.select(2 * draw("normal", N), state, at(0))
    assert int(state["evaluated_at"]) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interval": 0}, "interval=0 must be an integer of at least 1"),
        ({"low": -0.1}, r"low=-0.1 must be in \[0, 1\]"),
        ({"high": 0.5}, r"high=0.5 must be at least 1"),
        ({"cap": 0.5}, r"cap=0.5 must be at least 1"),
        ({"cap": math.nan}, r"cap=nan must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        ReusedThreshold(0.01, **settings)  # type: ignore[arg-type]
