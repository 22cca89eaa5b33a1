"""The count sketch as a codec: it adds, it is right on average, and its noise is known."""

import math

import pytest
import torch

from thinwire.codec.sketch import CountSketch
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.types import ExchangeContext, LinearCodec, Sparse

SEEDS = 2000
NUMEL = 120


def context(step: int = 0) -> ExchangeContext:
    return ExchangeContext(tensor="w", step=step, seed=3, comm=GroupCommunicator(None))


def everything(values: torch.Tensor) -> Sparse:
    return Sparse(torch.arange(values.numel()), values, values.numel())


def estimates(codec: CountSketch, values: torch.Tensor) -> torch.Tensor:
    """What comes back under each of 2,000 seeds."""
    drawn = []
    for step in range(SEEDS):
        ctx = context(step)
        drawn.append(codec.recover(codec.project(everything(values), ctx), values.numel(), ctx))
    return torch.stack(drawn)


def test_is_a_linear_codec() -> None:
    assert isinstance(CountSketch(), LinearCodec)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_the_sketch_of_a_sum_is_the_sum_of_the_sketches(ratio: float, rows: int) -> None:
    """Bit for bit: integers, so that no sum is rounded, in whatever order."""
    draw = torch.Generator().manual_seed(1)
    dense = torch.randint(-1000, 1000, (4, 500), generator=draw).double()
    dense[torch.rand(4, 500, generator=draw) < 0.5] = 0
    parts = [Sparse(x.nonzero().flatten(), x[x != 0], 500) for x in dense]
    codec, ctx = CountSketch(ratio, rows), context()
    added = torch.stack([codec.project(part, ctx) for part in parts]).sum(0)
    assert torch.equal(added, codec.project(everything(dense.sum(0)), ctx))


# The mean of so many draws lies within 4 standard errors; so does, element by element, the norm.
@pytest.mark.parametrize(
    ("ratio", "rows", "decode"),
    [(2, 1, None), (1, 1, None), (0.5, 1, None), (0.5, 3, None), (1, 3, "mean"), (0.5, 2, None)],
)
@pytest.mark.parametrize("hashing", ["mix64", "four-wise"])
def test_right_on_average(ratio: float, rows: int, decode: str | None, hashing: str) -> None:
    values = torch.randn(NUMEL, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    drawn = estimates(CountSketch(ratio, rows, decode, hashing), values)
    errors = drawn.mean(0) - values
    variance = drawn.var(0) / SEEDS
    assert bool((variance > 0).all())
    assert bool((errors.abs() <= 4 * variance.sqrt()).all())
    for direction in (torch.ones_like(values), values, values.sign()):
        projected = (drawn - values) @ direction
        assert abs(projected.mean()) <= 4 * projected.std() / math.sqrt(SEEDS)


@pytest.mark.parametrize("ratio", [2.0, 1.0, 0.5, 0.2, 0.1, 0.05])
@pytest.mark.parametrize("hashing", ["mix64", "four-wise"])
def test_the_squared_error_of_one_row_is_one_over_lambda(ratio: float, hashing: str) -> None:
    """Element by element too: (‖x‖² - x_i²) over the buckets."""
    values = torch.randn(NUMEL, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    codec = CountSketch(ratio, rows=1, hashing=hashing)
    squares = (estimates(codec, values) - values).square()
    norm = values.square().sum()
    relative = squares.sum(1) / norm
    expected = (NUMEL - 1) / codec.buckets(NUMEL)
    assert abs(relative.mean() - expected) <= 4 * relative.std() / math.sqrt(SEEDS)
    assert abs(relative.mean() * ratio - 1) < 0.07
    each = (norm - values.square()) / codec.buckets(NUMEL)
    assert bool(((squares.mean(0) - each).abs() <= 5 * squares.std(0) / math.sqrt(SEEDS)).all())


def test_two_hash_families_are_two_sketches() -> None:
    x = everything(torch.ones(100))
    plain, proved = (CountSketch(hashing=h).project(x, context()) for h in ("mix64", "four-wise"))
    assert plain.shape == proved.shape
    assert not torch.equal(plain, proved)


def test_no_error_is_larger_than_its_bound() -> None:
    values = torch.randn(NUMEL, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    codec = CountSketch(0.1, 3)
    errors = (estimates(codec, values) - values).abs()
    assert bool((errors <= codec.error_bound(values) * (1 + 1e-12)).all())
    alone = torch.tensor([2.5])
    assert codec.error_bound(alone).item() == 0
    assert codec.recover(codec.project(everything(alone), context()), 1, context()).item() == 2.5


@pytest.mark.parametrize(("numel", "rows", "length"), [(1000, 1, 500), (1001, 3, 501), (0, 1, 1)])
def test_the_size_comes_from_what_anyone_may_send(numel: int, rows: int, length: int) -> None:
    codec = CountSketch(0.5, rows)
    nothing = Sparse(torch.arange(0), torch.empty(0), numel)
    assert codec.project(nothing, context()).numel() == length
    assert codec.recover(torch.zeros(length), numel, context()).tolist() == [0.0] * numel


def test_rows_of_an_embedding_are_their_elements() -> None:
    values = torch.randn(3, 4, generator=torch.Generator().manual_seed(5))
    rows = Sparse(torch.tensor([0, 2, 9]), values, 40)
    codec = CountSketch()
    assert torch.equal(codec.project(rows, context()), codec.project(rows.elements(), context()))


def test_another_step_is_another_hash() -> None:
    x = everything(torch.ones(100))
    first, again, other = (CountSketch().project(x, context(step)) for step in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("rows", [2, 4])
def test_the_median_of_an_even_number_is_refused(rows: int) -> None:
    with pytest.raises(RecipeError, match=f"rows={rows} is biased.*odd number of rows"):
        CountSketch(rows=rows, decode="median")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ratio": 0}, "ratio=0"),
        ({"ratio": math.inf}, "ratio=inf"),
        ({"ratio": "a"}, "ratio='a' must be a number"),
        ({"rows": 0}, "rows=0"),
        ({"rows": 1.5}, "rows=1.5"),
        ({"decode": "mode"}, "decode='mode'"),
        ({"hashing": "crc"}, "hashing='crc'"),
    ],
)
def test_bad_settings_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        CountSketch(**settings)
