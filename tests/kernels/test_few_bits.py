"""Few bits: every implementation writes the same bytes and leaves the same bits.

Covers kernels/few_bits/form.py and kernels/few_bits/groups.py.
"""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels.addend import Addend
from thinwire.kernels.few_bits import (
    Form,
    add_up_shards,
    dequantise_shards,
    quantise_shards,
    reference,
)
from thinwire.kernels.few_bits.form import SMALLEST

each = pytest.mark.parametrize("case", cases("few_bits"))
widths = pytest.mark.parametrize("width", [8, 4])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
ways = pytest.mark.parametrize(
    ("seed", "rotation"), [(None, None), (2**63 - 5, None), (None, 7), (3, 2**62 + 1)]
)
SIZES = [(0, 2, 16), (1, 1, 16), (700, 1, 128), (1000, 3, 32), (130, 8, 16), (3000, 4, 64)]


def values_of(numel: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Of many magnitudes, with zeros of both signs, denormals and whole groups of zeros."""
    draw = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-6, 6, (numel,), generator=draw).to(dtype)
    x = torch.randn(numel, generator=draw, dtype=dtype) * scale
    x[10:20] = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e-38] * 2)[: max(0, min(10, numel - 10))]
    x[256:300] = -0.0
    x[320:352] *= 1e-36
    return x


def sent(form: Form, dtype: torch.dtype, ranks: int) -> Tensor:
    """What all ranks send to the owner of shard 0, in the shape of what arrives."""
    rows = [
        reference.quantise_shards(values_of(form.numel, dtype, r), form, 0, None, False, None)[0]
        for r in range(ranks)
    ]
    return torch.stack(rows)


@each
@widths
@dtypes
@ways
def test_the_same_bytes_and_the_same_rest(
    case: Case, width: int, dtype: torch.dtype, seed: int | None, rotation: int | None
) -> None:
    for numel, shards, group in case.some(SIZES):
        form, own = Form(numel, shards, width, group, rotation), shards // 2
        expected, x = values_of(numel, dtype), case.place(values_of(numel, dtype))
        rows = reference.quantise_shards(expected, form, own, seed, True, None)
        assert torch.equal(case.run(quantise_shards, x, form, own, seed).cpu(), rows)
        assert bits(x) == bits(expected)

        given = sent(form, dtype, shards)
        summed = reference.add_up_shards(given, expected, form, 0, seed, True)
        assert torch.equal(case.run(add_up_shards, given, x, form, 0, seed).cpu(), summed)
        assert bits(x) == bits(expected)

        out = case.place(torch.full((numel,), torch.nan, dtype=dtype))
        mean = reference.dequantise_shards(rows, form, torch.empty(numel, dtype=dtype), 3, 0)
        assert bits(case.run(dequantise_shards, rows, form, out, 3)) == bits(mean)
        first, end = form.span(own)
        part, row = out[first:end], rows[own : own + 1]
        assert bits(case.run(dequantise_shards, row, form, part, 3, own)) == bits(mean[first:end])


@each
@widths
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("settle", [False, True])
def test_fused_is_first_add_then_quantise(
    case: Case, width: int, dtype: torch.dtype, momentum: bool, settle: bool
) -> None:
    form, grad, residual = Form(1000, 3, width, 32), normal(1000, dtype, 1), normal(1000)
    grad[500] = torch.nan
    step = torch.where(grad.isfinite(), grad, 0)
    step = normal(1000, seed=2).mul_(0.9).add_(step) if momentum else step
    whole = residual + step
    rows = reference.quantise_shards(whole, form, 1, None, settle, None)
    velocity = case.place(normal(1000, seed=2)) if momentum else None
    bad, placed = case.place(torch.tensor(0, dtype=torch.int32)), case.place(residual)
    addend = Addend(case.place(grad), velocity, 0.9, bad=bad)
    assert torch.equal(case.run(quantise_shards, placed, form, 1, None, settle, addend).cpu(), rows)
    assert bits(placed) == bits(whole)
    assert int(bad) == 1


@each
@widths
@pytest.mark.parametrize("seed", [None, 5])
def test_what_travels_and_what_is_left_are_what_was_there(
    case: Case, width: int, seed: int | None
) -> None:
    """To the bit where both are of one magnitude, and within half a scale or one of it."""
    form = Form(1000, 3, width, 32)
    x = case.place(normal(1000))
    rows = case.run(quantise_shards, x, form, 1, seed)
    travels = case.run(dequantise_shards, rows, form, torch.empty(1000)).cpu()
    first, end = form.span(1)
    outside = torch.ones(1000, dtype=torch.bool)
    outside[first:end] = False
    left = x.cpu()
    torch.testing.assert_close((travels + left)[outside], normal(1000)[outside], rtol=0, atol=1e-7)
    assert torch.equal(left[first:end], normal(1000)[first:end])
    scale = form.scales(rows.cpu()).float().reshape(-1).repeat_interleave(32)[:1000]
    assert (left[outside].abs() <= scale[outside] * (0.5001 if seed is None else 1)).all()
    biggest = normal(1000).abs().view(-1)[:992].view(-1, 32).amax(1)
    steps = biggest / form.levels
    assert (scale[::32][:31] >= steps).all() and (scale[::32][:31] <= 1.008 * steps).all()


@each
@widths
def test_the_owner_rounds_nothing_but_the_sum(case: Case, width: int) -> None:
    form, ranks = Form(300, 3, width, 32), range(3)
    given, own = sent(form, torch.float32, 3), values_of(300, torch.float32)
    first, end = form.span(0)
    parts = [
        reference.dequantise_shards(row[None], form, torch.empty(end), 1, 0).double()
        for row in given
    ]
    parts[0] = own[first:end].double()
    x = case.place(own.clone())
    row = case.run(add_up_shards, given, x, form, 0)
    total = case.run(dequantise_shards, row[None], form, torch.empty(end)).cpu()
    kept = total.double() + x.cpu()[first:end]
    moved = sum(parts[r].abs() for r in ranks) + total.abs()
    assert ((kept - sum(parts)).abs() <= 8 * 2.0**-23 * moved).all()
    assert torch.equal(x.cpu()[end:], own[end:])


@widths
@pytest.mark.parametrize("rotation", [None, 9])
def test_at_random_is_right_on_average(width: int, rotation: int | None) -> None:
    draws, x = 400, normal(64)
    form, mean = Form(64, 1, width, 32, rotation), torch.zeros(64, dtype=torch.float64)
    for seed in range(draws):
        rows = quantise_shards(x.clone(), form, 0, seed, False)
        mean += dequantise_shards(rows, form, torch.empty(64)) / draws
    scale = float(form.scales(quantise_shards(x.clone(), form, 0)).float().max())
    deviation = scale / 2 / draws**0.5 / (32**0.5 if rotation else 1)
    assert (mean - x).abs().max() <= 5 * deviation
    assert (mean - x).norm() <= 2 * deviation * 8


@each
@widths
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_group_that_is_not_finite_travels_as_nan(case: Case, width: int, value: float) -> None:
    form, x = Form(96, 2, width, 16), normal(96)
    x[20] = value
    placed = case.place(x.clone())
    rows = case.run(quantise_shards, placed, form, 1)
    travels = case.run(dequantise_shards, rows, form, torch.empty(96)).cpu()
    assert travels.isnan().nonzero().flatten().tolist() == list(range(16, 32))
    assert not placed.cpu()[16:32].any() and placed.cpu().isfinite().all()
    row = case.run(add_up_shards, rows, placed, form, 0)
    sums = case.run(dequantise_shards, row[None], form, torch.empty(48)).cpu()
    assert sums.isfinite().all()  # its own, which is zero there by now
    placed = case.place(x.clone())
    row = case.run(add_up_shards, rows, placed, form, 0)
    assert form.scales(row[None].cpu()).isnan().tolist() == [[False, True, False]]
    assert placed.cpu().isfinite().all()


@each
@widths
def test_the_largest_and_the_smallest_numbers(case: Case, width: int) -> None:
    form, x = Form(64, 1, width, 16), normal(64)
    x[:16] = torch.tensor([3.4028e38, -3.4028e38]).repeat(8)
    x[16:32] *= SMALLEST / 100
    placed = case.place(x.clone())
    rows = case.run(quantise_shards, placed, Form(64, 2, width, 16), 1)
    travels = case.run(dequantise_shards, rows, Form(64, 2, width, 16), torch.empty(64)).cpu()
    assert travels.isfinite().all()
    torch.testing.assert_close(travels[:16], x[:16], rtol=0.01, atol=0)
    assert not travels[16:32].any()
    assert torch.equal(placed.cpu()[16:32], x[16:32])
    assert form.groups == 4


def test_a_rotation_spreads_what_sticks_out() -> None:
    """One element a thousand times the others: they survive four bits only if it is rotated."""
    x = normal(128)
    x[7] = 1000.0
    errors = []
    for rotation in (None, 1):
        form, left = Form(256, 2, 4, 128, rotation), torch.cat((x, x))
        quantise_shards(left, form, 1)
        errors.append(float(left[:7].norm()))
    assert float(x[:7].norm()) == errors[0]  # nothing of them travelled
    form, sums = Form(256, 2, 8, 128, 1), torch.cat((x, x))
    rows = quantise_shards(sums.clone(), form, 1)
    torch.testing.assert_close(
        dequantise_shards(rows, form, torch.empty(256)), sums, rtol=0, atol=1.0
    )


def test_bytes() -> None:
    """A code for each element, and two bytes for each group: within 5 %, at the recipes' 128."""
    for width in (4, 8):
        form = Form(10**6, 4, width, 128)
        assert form.row_bytes * 4 <= 10**6 * width / 8 * 1.05
        assert form.row_bytes % 16 == 0
        assert form.groups * 4 * 128 >= form.numel > (form.groups - 1) * 4 * 128
    assert [Form(130, 8, 8, 16).span(s) for s in (0, 4, 7)] == [(0, 32), (128, 130), (130, 130)]


@each
def test_a_damaged_shard_or_one_of_another_form_is_found(case: Case) -> None:
    form = Form(1000, 3, 4, 32, 5)
    rows = case.run(quantise_shards, normal(1000), form, 1)
    with case.chosen():
        here, there = form.stamp("here"), form.stamp("there")
        form.seal(rows, here)
        assert bool(form.sound(rows, here)) and not form.sound(rows, there)
        on_device = torch.full((), here, dtype=torch.int64, device=rows.device)
        assert bool(form.sound(rows, on_device)) and not form.sound(rows, on_device + 1)
        others = (Form(1001, 3, 4, 32, 5), Form(1000, 3, 4, 32), Form(1000, 3, 4, 32, 6))
        assert here not in {other.stamp("here") for other in others}
        for place in (0, form.code_bytes, form.row_bytes - 9, form.row_bytes - 1):
            damaged = rows.clone()
            damaged[2, place] ^= 64
            assert not form.sound(damaged, here)


def test_what_does_not_fit_is_refused() -> None:
    form, x = Form(100, 2, 8, 16), normal(100)
    with pytest.raises(RecipeError, match="99 elements and shard 0 do not fit"):
        quantise_shards(x[:99], form, 0)
    with pytest.raises(RecipeError, match="100 elements and shard 2 do not fit"):
        quantise_shards(x, form, 2)
    rows = quantise_shards(x, form, 0)
    with pytest.raises(RecipeError, match="100 elements do not fit shards 0 to 0"):
        dequantise_shards(rows[:1], form, x)
    with pytest.raises(RecipeError, match=r"shape \(2, 79\) do not fit"):
        dequantise_shards(rows[:, 1:], form, x)
    with pytest.raises(RecipeError, match="100 elements do not fit shards 1 to 2"):
        dequantise_shards(rows, form, x, shard=1)
