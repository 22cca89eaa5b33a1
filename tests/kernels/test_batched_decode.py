"""Batched decoding: the sum in the order of the parts, the same bits from every implementation."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from support.implementations import HAS_GPU, Case, bits, cases
from thinwire.errors import RecipeError
from thinwire.kernels.batched_decode import add_rows, decode_sum
from thinwire.types import PADDING, Sparse, accumulator

CASES = pytest.mark.parametrize("case", cases("batched_decode"))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def part(numel: int, count: int, seed: int, dtype: torch.dtype = torch.float32) -> Sparse:
    """Unordered, with some zeros of both signs."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=draw, dtype=dtype)
    values[::7] = 0.0
    values[3::7] = -0.0
    return Sparse(torch.randperm(numel, generator=draw)[:count], values, numel, ordered=False)


def some(numel: int, counts: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Sparse]:
    """Every other one in order."""
    parts = [part(numel, count, seed, dtype) for seed, count in enumerate(counts)]
    return [one.sorted() if place % 2 else one for place, one in enumerate(parts)]


def on(device: str, parts: list[Sparse]) -> list[Sparse]:
    return [replace(p, indices=p.indices.to(device), values=p.values.to(device)) for p in parts]


def one_after_the_other(parts: list[Sparse], dtype: torch.dtype, numel: int) -> Tensor:
    """The contract, element by element."""
    total = torch.zeros(numel, dtype=accumulator(dtype))
    for p in parts:
        for index, value in zip(p.indices.tolist(), p.values, strict=True):
            total[index] += value.to(total.dtype)
    return total


def skip_truncation(case: Case, dtype: torch.dtype) -> None:
    if (case.implementation, dtype, HAS_GPU) == ("triton", torch.bfloat16, False):
        pytest.skip("Triton's interpreter truncates to bfloat16, a GPU rounds")


def dirty(numel: int, dtype: torch.dtype) -> Tensor:
    return torch.full((numel,), float("nan"), dtype=dtype)


PARTS = {
    "mixed": (2000, (300, 0, 17, 1000, 1)),
    "one": (700, (100,)),
    "none": (130, ()),
    "empty": (130, (0, 0)),
    "everything": (300, (300,) * 4),
    "tiny": (1, (1, 1, 1)),
    "few places": (40, (30,) * 6),
    "spread": (9000, (60, 0, 50, 40)),
    "a few hundred in a tile": (5000, (70, 60, 0, 80)),
    "many": (1500, (40,) * 33),
}


@CASES
@pytest.mark.parametrize("shape", PARTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_in_the_order_of_the_parts(case: Case, shape: str, dtype: torch.dtype) -> None:
    skip_truncation(case, dtype)
    numel, counts = PARTS[shape]
    parts = some(numel, counts)
    out = dirty(numel, dtype).to(case.device)
    result = case.run(decode_sum, on(case.device, parts), out)
    assert result is out
    expected = one_after_the_other(parts, dtype, numel)
    assert bits(out) == bits(expected.to(dtype))


@CASES
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_scaled_last(case: Case, dtype: torch.dtype) -> None:
    skip_truncation(case, dtype)
    parts = some(500, (200, 300, 250))
    out = dirty(500, dtype).to(case.device)
    case.run(decode_sum, on(case.device, parts), out, 1 / 3)
    assert bits(out) == bits((one_after_the_other(parts, dtype, 500) * (1 / 3)).to(dtype))


@CASES
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_values_in_double_are_rounded_before_they_are_added(case: Case, dtype: torch.dtype) -> None:
    parts = some(500, (200, 300, 250), torch.float64)
    out = dirty(500, dtype).to(case.device)
    case.run(decode_sum, on(case.device, parts), out, 0.3)
    assert bits(out) == bits(one_after_the_other(parts, dtype, 500) * 0.3)


def clustered(numel: int, each: int, apart: int) -> list[Sparse]:
    """All parts on top of each other, amid nothing."""
    draw = torch.Generator().manual_seed(5)
    middle = numel // 3 + apart * torch.arange(each)
    return [Sparse(middle + i, torch.randn(each, generator=draw), numel) for i in range(3)]


@CASES
@pytest.mark.parametrize(
    ("numel", "each", "apart"), [(6000, 700, 1), (40_000, 200, 40)], ids=["dense", "loose"]
)
def test_a_cluster_in_one_place(case: Case, numel: int, each: int, apart: int) -> None:
    parts = clustered(numel, each, apart)
    out = dirty(numel, torch.float32).to(case.device)
    case.run(decode_sum, on(case.device, parts), out, 0.7)
    assert bits(out) == bits(one_after_the_other(parts, torch.float32, numel) * 0.7)


@CASES
def test_rows_are_decoded_as_their_elements(case: Case) -> None:
    rows = Sparse(torch.tensor([3, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 8, ordered=False)
    out = dirty(8, torch.float32).to(case.device)
    case.run(decode_sum, on(case.device, [rows, rows]), out)
    assert out.tolist() == [6, 8, 0, 0, 0, 0, 2, 4]


@CASES
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_scale_may_lie_on_the_device(case: Case, dtype: torch.dtype) -> None:
    skip_truncation(case, dtype)
    parts = some(500, (200, 300, 250))
    for scale in (torch.tensor(1 / 3, dtype=torch.float64), torch.tensor(0.25)):
        out = dirty(500, dtype).to(case.device)
        case.run(decode_sum, on(case.device, parts), out, scale)
        assert bits(out) == bits((one_after_the_other(parts, dtype, 500) * scale).to(dtype))


def padded(parts: list[Sparse], length: int) -> list[Sparse]:
    """Ascending, and filled up: just beyond the end, far from it, and with the word for it."""
    filled = []
    for place, p in enumerate(parts):
        filling = (p.numel, p.numel + 3, 1 << 62, PADDING)[place % 4]
        indices = torch.full((length,), filling)
        values = torch.zeros(length, dtype=p.values.dtype)
        whole = p.sorted()
        indices[: p.count], values[: p.count] = whole.indices, whole.values
        filled.append(Sparse(indices, values, p.numel, padded=True))
    return filled


@CASES
@pytest.mark.parametrize("shape", [name for name in PARTS if name != "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_padding_is_ignored_and_rows_are_parts(case: Case, shape: str, dtype: torch.dtype) -> None:
    numel, counts = PARTS[shape]
    parts = some(numel, counts)
    filled = padded(parts, max(counts) + 5)
    expected = bits((one_after_the_other(parts, dtype, numel) * 0.5).to(dtype))
    out = dirty(numel, dtype).to(case.device)
    case.run(decode_sum, on(case.device, filled), out, 0.5)
    assert bits(out) == expected


@CASES
@pytest.mark.parametrize("shape", [name for name in PARTS if name != "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.5, 1 / 3])
def test_rows_are_added_in_turn(case: Case, shape: str, dtype: torch.dtype, scale: float) -> None:
    skip_truncation(case, dtype)
    numel, counts = PARTS[shape]
    parts = some(numel, counts)
    filled = padded(parts, max(counts) + 5)
    rows = [torch.stack([getattr(p, name) for p in filled]) for name in ("indices", "values")]
    rows[0][0][-1] = -3  # no index either
    expected = torch.arange(numel, dtype=dtype)
    for p in parts:
        expected[p.indices] += p.values.to(dtype) * scale
    total = torch.arange(numel, dtype=dtype).to(case.device)
    rows = [row.to(case.device) for row in rows]
    assert case.run(add_rows, *rows, total, scale).tolist() == 0
    assert bits(total) == bits(expected)


@CASES
@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_rows_without_elements(case: Case, shape: tuple[int, int]) -> None:
    total = torch.ones(7, device=case.device)
    rows = torch.empty(shape, dtype=torch.int64), torch.empty(shape)
    assert not case.run(add_rows, *(row.to(case.device) for row in rows), total)
    assert total.tolist() == [1] * 7


@CASES
@pytest.mark.parametrize("marked", [[], [0], [2], [0, 1, 2]])
def test_a_mark_of_any_row_is_told(case: Case, marked: list[int]) -> None:
    indices = torch.stack([torch.arange(1500) + row for row in range(3)]).to(case.device)
    values = torch.ones(3, 1500)
    values[:, 7] = torch.nan  # which is no mark there
    values[marked, 0] = torch.nan
    told = case.run(add_rows, indices, values, torch.zeros(2000, device=case.device))
    assert told.dtype == torch.int64 and told.dim() == 0
    assert int(told) == bool(marked)


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_the_host_asks_a_cuda_device_nothing() -> None:
    parts, out = on("cuda", some(3000, (200, 300, 250))), torch.empty(3000, device="cuda")
    parts = [p.sorted() for p in parts]
    rows = (
        torch.stack([p.indices[:200] for p in parts]),
        torch.stack([p.values[:200] for p in parts]),
    )
    scale = torch.tensor(0.5, device="cuda")
    decode_sum(parts, out, scale)
    add_rows(*rows, out)
    torch.cuda.set_sync_debug_mode("error")
    try:
        decode_sum(parts, out, scale)
        add_rows(*rows, out)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_what_cannot_be_decoded_is_refused() -> None:
    parts = some(10, (3, 3))
    with pytest.raises(RecipeError, match="10 elements"):
        decode_sum(parts, torch.empty(11))
    with pytest.raises(RecipeError, match="flat"):
        decode_sum(parts, torch.empty(20)[::2])
    with pytest.raises(RecipeError, match="one dtype"):
        decode_sum([parts[0], part(10, 3, 0, torch.float64)], torch.empty(10))
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(RecipeError, match="scale"):
            decode_sum(parts, torch.empty(10), scale)
    for scale in (torch.ones(1), torch.tensor(1), torch.tensor(1.0, dtype=torch.float16)):
        with pytest.raises(RecipeError, match="scale of"):
            decode_sum(parts, torch.empty(10), scale)
    for indices, values in (
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4)),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(3)),
        (torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2, 3)),
    ):
        with pytest.raises(RecipeError, match="are no rows of parts"):
            add_rows(indices, values, torch.empty(10))
    rows = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3)
    with pytest.raises(RecipeError, match="would be rounded"):
        add_rows(*rows, torch.empty(10, dtype=torch.bfloat16))
