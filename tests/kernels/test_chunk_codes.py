"""Codes of chunks: scales, codes and values come out bit for bit the same, on every device.

Covers kernels/_numeric.py.
"""

import math

import pytest
import torch
from torch import Tensor

from support.implementations import Case, bits, cases
from thinwire.kernels._numeric import row_sums
from thinwire.kernels.chunk_codes import from_levels, from_points, reference, to_levels, to_points
from thinwire.kernels.chunk_codes.chunks import in_chunks
from thinwire.kernels.pack_bits import pack_bits

everywhere = pytest.mark.parametrize(
    "case", [p for p in cases("chunk_codes") if "numba" not in str(p.id)]
)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
SHAPES = [(1, 512), (700, 512), (700, 7), (33, 1), (37, 5), (2100, 1000), (4500, 5000)]
SEED = 2**63 - 5


def values_of(count: int, dtype: torch.dtype) -> Tensor:
    """Over many orders of magnitude; with zeros of both signs, denormals, and what saturates."""
    draw = torch.Generator().manual_seed(count)
    scale = 10.0 ** torch.randint(-6, 6, (count,), generator=draw).to(dtype)
    x = torch.randn(count, generator=draw, dtype=dtype) * scale
    extremes = [0.0, -0.0, 1e-45, -1e-45, torch.finfo(torch.float32).max, -3.4e38]
    if dtype == torch.float64:
        extremes += [5e-324, -1e300]
    for offset, extreme in enumerate(extremes):
        x[520 + 10 * offset : 525 + 10 * offset] = extreme
    x[610:680] = -0.0
    return x


def same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert bits(ours) == bits(theirs)


@everywhere
@dtypes
@pytest.mark.parametrize(("count", "chunk"), SHAPES)
@pytest.mark.parametrize(("norm", "width"), [("l2", 8), ("max", 2), ("max", 16)])
def test_levels(
    case: Case, dtype: torch.dtype, count: int, chunk: int, norm: str, width: int
) -> None:
    values, levels = values_of(count, dtype), (1 << (width - 1)) - 1
    expected = reference.to_levels(values, chunk, norm, levels, SEED)  # type: ignore[arg-type]
    same(case.run(to_levels, values, chunk, norm, levels, SEED), expected)
    norms, codes = expected
    packed, chunk = pack_bits(codes, width), min(chunk, count)
    out, sound = case.run(from_levels, packed, norms, count, chunk, width, dtype)
    theirs, _ = reference.from_codes(packed, norms, count, chunk, width, dtype, True)
    assert bits(out) == bits(theirs)
    assert bool(sound) and sound.dim() == 0


@everywhere
@dtypes
@pytest.mark.parametrize(("count", "chunk"), SHAPES)
@pytest.mark.parametrize(("width", "seed"), [(2, None), (2, SEED), (8, None), (8, SEED)])
def test_points(
    case: Case, dtype: torch.dtype, count: int, chunk: int, width: int, seed: int | None
) -> None:
    values = values_of(count, dtype)
    expected = reference.to_points(values, chunk, width, seed)
    same(case.run(to_points, values, chunk, width, seed), expected)
    scales, codes = expected
    packed, chunk = pack_bits(codes, width), min(chunk, count)
    out, sound = case.run(from_points, packed, scales, count, chunk, width, dtype)
    theirs, _ = reference.from_codes(packed, scales, count, chunk, width, dtype, False)
    assert bits(out) == bits(theirs)
    assert bool(sound) and sound.dim() == 0


@everywhere
@pytest.mark.parametrize("unknown", [math.nan, math.inf, -math.inf])
def test_scales_say_what_is_not_finite(case: Case, unknown: float) -> None:
    values = values_of(40, torch.float32)
    values[13] = unknown
    for scales, codes in (
        case.run(to_levels, values, 8, "l2", 127, SEED),
        case.run(to_levels, values, 8, "max", 127, SEED),
        case.run(to_points, values, 8, 8, SEED),
        case.run(to_points, values, 8, 2, None),
    ):
        assert scales.isfinite().tolist() == [True, False, True, True, True]
        assert codes.shape == (40,)


@everywhere
def test_nothing(case: Case) -> None:
    for scales, codes in (
        case.run(to_levels, torch.empty(0), 8, "l2", 127, SEED),
        case.run(to_points, torch.empty(0), 8, 2, None),
    ):
        assert scales.numel() == codes.numel() == 0
    packed, scales = torch.empty(0, dtype=torch.uint8), torch.empty(0)
    for read in (from_levels, from_points):
        values, sound = case.run(read, packed, scales, 0, 1, 8, torch.float32)
        assert values.numel() == 0 and bool(sound)


@everywhere
def test_what_is_not_sound_is_told(case: Case) -> None:
    packed, scales = torch.full((9,), 254, dtype=torch.uint8), torch.ones(3)
    assert bool(case.run(from_levels, packed, scales, 9, 3, 8, torch.float32)[1])
    for read in (from_levels, from_points):
        wrong = torch.tensor([1.0, 1.0, -1.0])
        assert not case.run(read, packed, wrong, 9, 3, 8, torch.float32)[1]
    packed[8] = 255
    assert not case.run(from_levels, packed, scales, 9, 3, 8, torch.float32)[1]


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7, 11, 512, 1000])
def test_halves_are_added_to_halves(width: int) -> None:
    """The order that all have in common, by hand."""
    rows = in_chunks(torch.randn(2 * width, generator=torch.Generator().manual_seed(1)), width)
    expected = []
    for row in rows.double().tolist():
        while len(row) > 1:
            half = (len(row) + 1) // 2
            row = [sum(row[i::half]) for i in range(half)]
        expected.append(row[0])
    assert row_sums(rows.double()).tolist() == expected
