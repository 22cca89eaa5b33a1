"""What every sparsifier promises, whatever its settings, the size and the distribution."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sparsify import DEVICES, DISTRIBUTIONS, at, draw, left_out, select, spec_of
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError
from thinwire.sparsify import (
    BlockTopK,
    ChunkTopK,
    Everything,
    GaussianK,
    HashedSlots,
    MultiStage,
    Nonzero,
    PartitionTopK,
    RandomK,
    ReusedThreshold,
    SampledThreshold,
    TopK,
)
from thinwire.types import Sparse, Sparsifier


def _between(low: float, high: float) -> Callable[[int, int, int], bool]:
    return lambda count, k, n: math.ceil(low * k) <= count <= min(n, math.floor(high * k))


def _exactly(count: int, k: int, n: int) -> bool:
    return count == k


def _whole_blocks(count: int, k: int, n: int) -> bool:
    # Half a block of rounding, a short last block, and half an element of k's own rounding.
    return (count > 0) == (n > 0) and abs(count - k) <= 4 + 8 + 1


def _of_each_chunk(count: int, k: int, n: int) -> bool:
    # k of a chunk is rounded, once by the setting and once by a short chunk, and one at least.
    chunks = -(-n // 64)
    return chunks <= count <= n and abs(count - k) <= chunks + 1


def _of_one_in_four(count: int, k: int, n: int) -> bool:
    # One of four ranks, whose partition may be empty; k of the longest one is rounded.
    return 0 <= count <= -(-n // 4) and (abs(4 * count - k) <= 6 or n < 4)


BUILD: dict[str, Callable[[float], Sparsifier]] = {
    "everything": lambda density: Everything(),
    "nonzero": lambda density: Nonzero(),
    "topk": TopK,
    "sampled": SampledThreshold,
    "hashed": lambda density: HashedSlots(density, slots=2.0),
    "reuse": lambda density: ReusedThreshold(density, interval=3),
    "gaussian": GaussianK,
    "multistage": MultiStage,
    "random": RandomK,
    "block": lambda density: BlockTopK(density, block=8),
    "partition": PartitionTopK,
    "chunks": lambda density: ChunkTopK.of_density(density, chunk=64),
}
COUNT_IS_RIGHT = {
    "everything": lambda count, k, n: count == n,
    "nonzero": lambda count, k, n: count <= n,
    "topk": _exactly,
    "sampled": _between(0.8, 1.3),
    "hashed": lambda count, k, n: count <= min(n, 2 * k),
    "reuse": _between(0.75, 1.25),
    "gaussian": _between(0.75, 1.25),
    "multistage": _exactly,
    "random": _exactly,
    "block": _whole_blocks,
    "partition": _of_one_in_four,
    "chunks": _of_each_chunk,
}
SPARSE = [name for name in BUILD if name not in ("everything", "nonzero")]  # by a density
for name, piece in pieces("sparsifier").items():  # those of third parties, as they come
    BUILD.setdefault(name, lambda density, piece=piece: piece())
    COUNT_IS_RIGHT.setdefault(name, lambda count, k, n: count <= n)
TAKES_THE_LARGEST = ["topk", "sampled", "reuse", "gaussian"]

# Below and above the size from which exact selection first narrows by a sample.
SIZES = st.one_of(st.integers(0, 300), st.sampled_from([4097, 20_001, 70_000]))
DENSITIES = st.one_of(st.floats(1e-4, 1.0), st.sampled_from([0.001, 0.01, 0.1, 1.0]))
SHAPES = st.sampled_from(sorted(DISTRIBUTIONS))
DTYPES = st.sampled_from([torch.float32, torch.float64])
SEEDS = st.integers(0, 1000)

each_device = pytest.mark.parametrize("device", DEVICES)
each = pytest.mark.parametrize("name", list(BUILD))
each_sparse = pytest.mark.parametrize("name", SPARSE)
# Derandomised: a failure here is a bug to reproduce, not a matter of luck.
some = settings(max_examples=120, deadline=None, derandomize=True)
few = settings(some, max_examples=20)


def test_the_suite_covers_every_sparsifier() -> None:
    assert set(BUILD) == set(pieces("sparsifier")) == set(COUNT_IS_RIGHT)
    for name, build in BUILD.items():
        assert type(build(0.5)) is pieces("sparsifier")[name]


@each_device
@each
@some
@given(n=SIZES, density=DENSITIES, shape=SHAPES, dtype=DTYPES, seed=SEEDS)
def test_a_selection_is_well_formed_and_of_the_right_size(
    device: str, name: str, n: int, density: float, shape: str, dtype: torch.dtype, seed: int
) -> None:
    x = draw(shape, n, seed, dtype, device)
    before = x.clone()
    chosen = select(BUILD[name](density), x)

    assert torch.equal(x, before)
    assert chosen.numel == n
    assert chosen.indices.dtype == torch.int64
    assert chosen.indices.device == chosen.values.device == x.device
    assert chosen.indices.shape == chosen.values.shape == (chosen.count,)
    if chosen.count:
        assert int(chosen.indices.min()) >= 0
        assert int(chosen.indices.max()) < n
    if chosen.ordered:
        assert bool((chosen.indices.diff() > 0).all())
    else:
        assert len(set(chosen.indices.tolist())) == chosen.count
    assert chosen.values.dtype == dtype
    assert torch.equal(chosen.values, x[chosen.indices])

    k = max(1, round(density * n)) if n else 0
    assert COUNT_IS_RIGHT[name](chosen.count, k, n), f"{chosen.count} selected for k={k}, n={n}"


@each_device
@pytest.mark.parametrize("name", TAKES_THE_LARGEST)
@some
@given(n=SIZES, density=DENSITIES, shape=SHAPES, dtype=DTYPES, seed=SEEDS)
def test_nothing_left_out_is_larger_than_what_was_taken(
    device: str, name: str, n: int, density: float, shape: str, dtype: torch.dtype, seed: int
) -> None:
    x = draw(shape, n, seed, dtype, device)
    chosen = select(BUILD[name](density), x)
    rest = left_out(x, chosen)
    if chosen.count and rest.numel():
        assert chosen.values.abs().min() >= rest.max()


@each_device
@each
@few
@given(n=SIZES, density=DENSITIES, shapes=st.lists(SHAPES, min_size=4, max_size=6))
def test_the_laws_hold_over_steps_whatever_the_state_remembers(
    device: str, name: str, n: int, density: float, shapes: list[str]
) -> None:
    sparsifier = BUILD[name](density)
    state = sparsifier.init(spec_of(draw("zeros", n, device=device)))
    k = max(1, round(density * n)) if n else 0
    for step, shape in enumerate(shapes):
        x = draw(shape, n, step, device=device)
        chosen = sparsifier.select(x, state, at(step))
        if not isinstance(chosen, Sparse):
            assert chosen is x
            continue
        assert COUNT_IS_RIGHT[name](chosen.count, k, n)
        assert bool((chosen.indices.diff() > 0).all())
        assert torch.equal(chosen.values, x[chosen.indices])
        if name in TAKES_THE_LARGEST and 0 < chosen.count < n:
            assert chosen.values.abs().min() >= left_out(x, chosen).max()


@each_device
@each
@few
@given(n=SIZES, density=DENSITIES, shape=SHAPES)
def test_same_address_same_selection_on_every_number_of_threads(
    device: str, name: str, n: int, density: float, shape: str
) -> None:
    x = draw(shape, n, device=device)
    first = select(BUILD[name](density), x)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        second = select(BUILD[name](density), x)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(first.indices, second.indices)
    assert torch.equal(first.values, second.values)


@each
def test_the_global_generators_are_left_alone(name: str) -> None:
    before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    select(BUILD[name](0.01), draw("normal", 70_000))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == str(np.random.get_state())  # noqa: NPY002


@each_sparse
def test_a_schedule_overrides_the_density(name: str) -> None:
    x = draw("normal", 10_000)
    chosen = select(BUILD[name](0.01), x, at(density=0.2))
    assert COUNT_IS_RIGHT[name](chosen.count, 2000, 10_000)


@each_sparse
@pytest.mark.parametrize("density", [0.0, -0.1, 1.01, math.nan, math.inf])
def test_a_density_outside_its_range_is_refused(name: str, density: float) -> None:
    with pytest.raises(RecipeError, match=r"density=.* must be in \(0, 1\]"):
        BUILD[name](density)


@each
def test_a_piece_is_plain_settings_and_its_state_is_the_units(name: str) -> None:
    sparsifier = BUILD[name](0.01)
    assert isinstance(sparsifier, Sparsifier)
    assert not hasattr(sparsifier, "__dict__"), "slots=True keeps a piece free of hidden state"
    for field in dataclasses.fields(sparsifier):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(sparsifier, field.name, None)
    assert pieces("sparsifier")[name](**dataclasses.asdict(sparsifier)) == sparsifier  # type: ignore[call-overload]

    x = draw("normal", 5000)
    state = sparsifier.init(spec_of(x))
    sparsifier.select(x, state, at(0))
    assert all(t.dim() == 0 for t in state.values()), "1-D state would be split by element"


@each
def test_resuming_from_saved_state_is_never_having_stopped(name: str) -> None:
    sparsifier = BUILD[name](0.01)
    state = sparsifier.init(spec_of(draw("normal", 5000)))
    for step in range(4):
        sparsifier.select(draw("normal", 5000, step), state, at(step))
    saved = {key: tensor.clone() for key, tensor in state.items()}
    for step in range(4, 9):
        x = draw("normal", 5000, step)
        went_on = sparsifier.select(x, state, at(step))
        resumed = sparsifier.select(x, saved, at(step))
        if isinstance(went_on, Sparse) and isinstance(resumed, Sparse):
            assert torch.equal(went_on.indices, resumed.indices)
    assert saved.keys() == state.keys()
    assert all(torch.equal(saved[key], state[key]) for key in state)
