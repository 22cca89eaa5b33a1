"""Raw indices: all implementations read and refuse the same."""

import pytest
import torch

from support.implementations import Case, cases
from thinwire.kernels.raw_indices import widen
from thinwire.types import PADDING

everywhere = pytest.mark.parametrize(
    "case", [p for p in cases("raw_indices") if "numba" not in p.id]
)
KINDS = [
    (torch.int16, 2**16 - 1),
    (torch.int16, 2**16),
    (torch.int32, 2**31),
    (torch.int64, 2**40),
]


@everywhere
@pytest.mark.parametrize(("dtype", "rows"), KINDS)
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [1, 2500])
def test_they_come_back(
    case: Case, dtype: torch.dtype, rows: int, ordered: bool, count: int
) -> None:
    draw = torch.Generator().manual_seed(count)
    most = min(rows, 2**40) - 1
    drawn = torch.randint(most // 2, (3, count), generator=draw)
    places = (drawn.sort(1).values + torch.arange(count)).clamp(max=most - 1)
    places[2, -1] = most if rows != 2**16 or ordered else 7
    if count > 1:
        places[0, -2:] = PADDING
    if not ordered:
        places = places.flip(1)
    room = torch.zeros(3, count + 8, dtype=dtype)
    room[:, 4:-4] = places.masked_fill(places == PADDING, -1).to(dtype)
    found, sound = case.run(widen, room.to(case.device)[:, 4:-4], rows, ordered)
    if rows == 2**16 and ordered and count > 1:
        places[0, -2] = 2**16 - 1  # the first that looks like padding is the last row
    assert torch.equal(found.cpu(), places)
    assert bool(sound) and sound.dim() == 0


@everywhere
@pytest.mark.parametrize(
    ("dtype", "rows", "places", "ordered"),
    [
        (torch.int16, 100, [1, 2, 100], False),
        (torch.int32, 2**20, [1, -2, 3], False),
        (torch.int64, 2**40, [1, 2**40, 3], False),
        (torch.int16, 100, [1, 2, 2], True),
        (torch.int32, 2**20, [5, 4, 6], True),
        (torch.int64, 2**40, [5, 6, 2**40], True),
    ],
)
def test_what_is_wrong_is_told(
    case: Case, dtype: torch.dtype, rows: int, places: list[int], ordered: bool
) -> None:
    lists = torch.tensor([list(range(3)), places], dtype=dtype)
    assert not case.run(widen, lists, rows, ordered)[1]
    assert case.run(widen, lists[:1], rows, ordered)[1]


@everywhere
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_none_at_all(case: Case, shape: tuple[int, int]) -> None:
    found, sound = case.run(widen, torch.empty(shape, dtype=torch.int16), 9, True)
    assert found.shape == shape and bool(sound)
