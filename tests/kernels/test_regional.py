"""Regions: the layout, all implementations bit for bit the same, and nothing wrong is believed."""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, cases
from thinwire.codec.index.regional import FORMS
from thinwire.kernels.regional import Form, read, reference, write

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
