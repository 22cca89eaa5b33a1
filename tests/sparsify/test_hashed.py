"""DRAGONN's hash selection."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from support.sparsify import DEVICES, at, draw, left_out, select
from thinwire.errors import RecipeError
from thinwire.kernels.compact import Found
from thinwire.kernels.hash_select import numba
from thinwire.kernels.hash_select.numba import compact
from thinwire.kernels.lazy_sum import LazySum
from thinwire.rng import hash_to_range
from thinwire.sparsify import HashedSlots
from thinwire.types import PADDING, State, TensorSpec


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("slots", [0.5, 1.0, 3.0])
def test_the_share_of_slots_filled_is_that_of_balls_in_bins(slots: float, device: str) -> None:
    """Over steps, each with a hash of its own, the mean is m·(1 - (1 - 1/m)^n)."""
    x = torch.zeros(20_000, device=device)
    n = 1000
    x[::20] = draw("normal", n, device=device).abs() + 1  # the only ones that can pass
    m = math.ceil(slots * n)
    steps = 40
    filled = [
        select(HashedSlots(n / 20_000, slots, sample=1.0), x, at(s)).count for s in range(steps)
    ]
    expected = m * (1 - (1 - 1 / m) ** n)
    # The number of filled bins varies less than a binomial of the same mean.
    deviation = math.sqrt(expected * (1 - expected / m) / steps)
    assert abs(sum(filled) / steps - expected) < 4 * deviation


def test_what_is_selected_is_large_and_never_more_than_the_slots() -> None:
    x = draw("laplace", 100_000)
    chosen = select(HashedSlots(0.01, slots=1.0), x)
    assert chosen.count <= 1000
    assert chosen.indices.unique().numel() == chosen.count
    assert torch.equal(chosen.values, x[chosen.indices])
    smallest = chosen.values.abs().min()
    # About k reach the threshold; the losers among them are larger than it too.
    assert (left_out(x, chosen) > smallest).sum() + chosen.count < 2000


def test_other_steps_let_other_elements_collide() -> None:
    x = draw("normal", 50_000)
    first, second = (set(select(HashedSlots(0.01), x, at(s)).indices.tolist()) for s in (0, 1))
    assert first != second
    assert first == set(select(HashedSlots(0.01), x, at(0)).indices.tolist())


@pytest.mark.parametrize("numel", [1 << 14, 1 << 16, 1 << 18])
def test_a_cpu_passes_over_the_elements_once_however_rough_the_sample(
    numel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a small tensor the threshold is the second of some 2,000: often 2 to 5 times k pass."""
    passes: list[int] = []

    def counted(*args: Any) -> Found:
        passes.append(0)
        return compact(*args)

    monkeypatch.setattr(numba, "compact", counted)
    sparsifier, x = HashedSlots(0.001), draw("normal", numel)
    steps = 60
    for step in range(steps):
        chosen = select(sparsifier, x, at(step))
        assert chosen.count <= math.ceil(0.001 * numel)
    assert len(passes) == steps


@pytest.mark.parametrize("slots", [0.0, -1.0, 1000.0])
def test_unreasonable_slots_are_refused(slots: float) -> None:
    with pytest.raises(RecipeError, match=f"slots={slots}"):
        HashedSlots(0.01, slots)


def as_on_a_gpu(rows: int | None = None) -> State:
    """The state of a unit, or of one of so many tensors."""
    state = HashedSlots().init(TensorSpec("x", 1, torch.float32, torch.device("cpu")))
    return state if rows is None else {key: torch.stack([v] * rows) for key, v in state.items()}


def test_slots_are_sent_as_they_are_where_steps_are_steady() -> None:
    x, ctx = draw("laplace", 50_000), replace(at(0), steady=True)
    chosen = HashedSlots(0.01).select_from(LazySum(x), as_on_a_gpu(), ctx)
    assert chosen.count == 500 and chosen.padded and not chosen.ordered
    there = chosen.indices != PADDING
    slots = hash_to_range(chosen.indices[there], 500, ctx.stream("hashed", shared=False))
    assert torch.equal(slots, there.nonzero().flatten())
    assert torch.equal(chosen.values[there], x[chosen.indices[there]])
    assert not chosen.values[~there].any()


@pytest.mark.parametrize("rows", [None, 3])
def test_a_threshold_serves_some_steps(rows: int | None) -> None:
    """The longer, the later: 0, 1, 2, 3, 4, 6, 9 …, in the end every 16th; and for its k alone."""
    sparsifier, state, x = HashedSlots(0.01), as_on_a_gpu(rows), draw("normal", 20_000)

    def sampled_at(step: int, density: float | None = None) -> int:
        ctx = replace(at(step), steady=True, density=density)
        sparsifier.select_from(LazySum(x), state, ctx)
        steps = state["sampled_at"].view(-1).tolist()
        assert len(set(steps)) == 1 and state["threshold"].shape == (
            () if rows is None else (rows,)
        )
        return int(steps[0])

    took = dict.fromkeys(sampled_at(step) for step in range(100))
    assert list(took) == [0, 1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 58, 74, 90]
    assert [sampled_at(100, 0.02), sampled_at(101, 0.02), sampled_at(102)] == [100, 100, 102]
    assert sampled_at(5) == 5, "from a later step of another run"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_selects_as_the_cpu_does_without_the_host() -> None:
    sparsifier = HashedSlots(0.01)
    for step in (0, 40, 41):
        x = draw("laplace", 70_001, seed=step)
        on_cpu, on_gpu = as_on_a_gpu(), as_on_a_gpu()
        on_gpu["threshold"] = on_gpu["threshold"].cuda()
        for state in (on_cpu, on_gpu):
            if step == 41:
                state["threshold"] += 4
                state["sampled_at"], state["sampled_for"] = torch.tensor(40), torch.tensor(701)
        ctx, there = replace(at(step), steady=True), LazySum(x.cuda())
        ours = sparsifier.select_from(LazySum(x), on_cpu, ctx)
        torch.cuda.set_sync_debug_mode("error")
        try:
            theirs = sparsifier.select_from(there, on_gpu, ctx)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.equal(theirs.indices.cpu(), ours.indices)
        assert torch.equal(theirs.values.cpu(), ours.values)
        assert torch.equal(on_gpu["threshold"].cpu(), on_cpu["threshold"])
