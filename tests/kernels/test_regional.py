"""Regions: the layout, all implementations bit for bit the same, and nothing wrong is believed."""

import pytest
import torch
from torch import Tensor

from support.codec.index_cases import uniform
from support.implementations import Case, cases
from thinwire.codec.index.regional import FORMS
from thinwire.kernels.regional import (
    TWELVE,
    Form,
    read,
    read_parts,
    read_rows,
    reference,
    write,
    write_parts,
    write_rows,
)
from thinwire.types import PADDING

NEAR, FAR, WHOLE = FORMS
everywhere = pytest.mark.parametrize(
    "case", [p for p in cases("regional") if "numba" not in str(p.id)]
)


def ascending(count: int, rows: int) -> Tensor:
    draw = torch.Generator().manual_seed(count)
    drawn = torch.randint(max(1, rows), (count,), generator=draw).unique()
    ends = torch.tensor([0, rows - 1] if count else [], dtype=torch.int64)
    return torch.cat((drawn, ends)).unique()


@everywhere
@pytest.mark.parametrize(
    ("count", "rows", "form"),
    [
        (0, 0, NEAR),
        (0, 200_000, NEAR),
        (1, 1, NEAR),
        (3, 2**16, NEAR),
        (1200, 40_000_000, NEAR),
        (700, 2**35 + 3, FAR),
        (700, 2**62, WHOLE),
        (0, 0, TWELVE),
        (1, 1, TWELVE),
        (300, 4096, TWELVE),
        (1199, 9_000, TWELVE),
        (1200, 400_000, TWELVE),
    ],
)
def test_all_are_the_reference_and_invert(case: Case, count: int, rows: int, form: Form) -> None:
    indices = ascending(count, rows)
    body = reference.write(indices, rows, form)
    assert body.numel() == form.size(indices.numel(), rows)
    assert torch.equal(case.run(write, indices, rows, form).cpu(), body)
    out, sound = case.run(read, body, indices.numel(), rows, form)
    assert torch.equal(out.cpu(), indices)
    assert bool(sound) and sound.dim() == 0


@everywhere
@pytest.mark.parametrize(
    ("counts", "offsets"),
    [
        ([2, 1], [5, 5, 9]),  # twice the same
        ([2, 1], [6, 5, 9]),
        ([3, 1], [1, 5, 9]),  # more than there are
        ([1, 1], [1, 5, 9]),
        ([4, -1], [1, 5, 9]),
        ([2**31 - 1, 2**31 - 1], [1, 5, 9]),
        ([2, 1], [1, 5, 101]),  # past the last row
        ([0, 3], [1, 65535, 2]),
    ],
)
def test_what_is_wrong_is_told(case: Case, counts: list[int], offsets: list[int]) -> None:
    table = torch.tensor(counts, dtype=torch.int32).view(torch.uint8)
    places = torch.tensor(offsets).to(torch.int16).view(torch.uint8)
    rows = 2**16 + 100
    out, sound = case.run(read, torch.cat((table, places)), 3, rows, NEAR)
    assert not sound
    assert out.shape == (3,)


def test_by_hand() -> None:
    body = reference.write(torch.tensor([1, 65535, 65537]), 2**16 + 100, NEAR)
    assert body.tolist() == [2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 255, 255, 1, 0]


@everywhere
@pytest.mark.parametrize("form", [NEAR, TWELVE])
@pytest.mark.parametrize("count", [30, 31])
def test_rows_may_end_in_padding(case: Case, form: Form, count: int) -> None:
    rows = 70_000
    indices = torch.stack([uniform(rows, count, seed) for seed in (1, 2, 3)])
    indices[1, -4:] = PADDING
    indices[2] = PADDING
    bodies = case.run(write_rows, indices, rows, form)
    assert bodies.shape == (3, form.size(count, rows))
    assert torch.equal(bodies.cpu(), reference.write_rows(indices, rows, form))
    out, sound = case.run(read_rows, bodies, count, rows, form)
    assert torch.equal(out.cpu(), indices)
    assert bool(sound)
    part = torch.nn.functional.pad(bodies, (0, 1))  # as parts are, which end in a byte
    alone, sound = case.run(read_rows, part[:1, :-1], count, rows, form)
    assert torch.equal(alone.cpu(), indices[:1])
    assert bool(sound)
    bodies[0, 0] += 1  # one more than there are
    assert not case.run(read_rows, bodies, count, rows, form)[1]


@everywhere
@pytest.mark.parametrize("form", [NEAR, FAR, WHOLE, TWELVE])
@pytest.mark.parametrize("count", [30, 31])
def test_parts_are_written_and_read_in_place(case: Case, form: Form, count: int) -> None:
    """A zero is behind each, and what lies around them stays as it is."""
    rows = 70_000
    indices = torch.stack([uniform(rows, count, seed) for seed in (1, 2, 3)])
    indices[1, -4:] = PADDING
    length = form.size(count, rows) + 1
    room = torch.full((3, -(-length // 8) * 8 + 16), 7, dtype=torch.uint8, device=case.device)
    parts = room[:, 8 : 8 + length]
    case.run(write_parts, indices, rows, form, parts)
    expected = reference.write_rows(indices, rows, form)
    assert torch.equal(parts[:, :-1].cpu(), expected)
    assert not parts[:, -1].any()
    assert (room[:, :8] == 7).all() and (room[:, 8 + length :] == 7).all()
    out, sound = case.run(read_parts, parts, count, rows, form)
    assert torch.equal(out.cpu(), indices)
    assert bool(sound)
    parts[2, -1] = 1  # said not to ascend
    assert not case.run(read_parts, parts, count, rows, form)[1]


@everywhere
def test_of_no_rows_a_part_is_its_last_byte(case: Case) -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    parts = torch.full((2, 1), 7, dtype=torch.uint8, device=case.device)
    assert not case.run(read_parts, parts, 0, 0, NEAR)[1]
    case.run(write_parts, none, 0, NEAR, parts)
    assert case.run(read_parts, parts, 0, 0, NEAR)[1]


@everywhere
def test_what_fills_up_packed_offsets_is_zero(case: Case) -> None:
    body = reference.write(torch.tensor([1, 5, 4097]), 5000, TWELVE)
    assert body.tolist() == [2, 0, 1, 0, 1, 0x50, 0, 1, 0, 0]
    body[-1] = 1
    out, sound = case.run(read, body, 3, 5000, TWELVE)
    assert not sound
    assert out.shape == (3,)
