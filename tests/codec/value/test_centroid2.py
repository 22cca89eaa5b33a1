"""centroid2: four means a group, in a size that every rank knows."""

import math

import pytest
import torch

from support.codec.cases import context, random_values
from support.codec.value_helpers import decoded, relative_error, with_bytes
from thinwire.codec import Pair
from thinwire.codec.index import Chunk12Index
from thinwire.codec.value import Centroid2Value, ChunkedValue
from thinwire.errors import RecipeError, WireFormatError
from thinwire.types import PADDING, Sparse


def tail(count: int = 8192) -> torch.Tensor:
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(5))
    return x[x.abs() > 2.42][:count]


def test_bits_a_value() -> None:
    codec = Centroid2Value()
    for count in (0, 1, 5, 4096, 5000):
        part = codec.encode(random_values(count, torch.float32, 1), 0)
        assert part.numel() == codec.size(count, torch.float32)
    assert codec.size(4096, torch.float32) == 8 + 4096 * 2.125 / 8


def test_what_a_selection_leaves_is_nearly_all_kept() -> None:
    """‖x - Q(x)‖ / ‖x‖ of the largest 1.6 % of normal values; an even grid has no point there."""
    assert relative_error(Centroid2Value(), tail()) == pytest.approx(math.sqrt(0.0045), abs=0.004)
    assert relative_error(ChunkedValue(bits=2), tail()) > 0.15


def test_the_mean_is_kept_and_no_sign_changes() -> None:
    x = random_values(3000, torch.float64, 3)
    out = decoded(Centroid2Value(100), x)
    torch.testing.assert_close(out.view(-1, 100).sum(1), x.view(-1, 100).sum(1))
    assert (out * x >= 0).all()


def test_the_receiver_learns_the_group_from_the_part() -> None:
    x = random_values(300, torch.float32, 3)
    part = Centroid2Value(64).encode(x, 0)
    assert torch.equal(Centroid2Value().decode(part, 300, x.dtype), decoded(Centroid2Value(64), x))


def test_non_finite_values_spoil_their_own_group_only() -> None:
    x = torch.ones(30)
    x[12], x[17] = math.inf, math.nan
    out = decoded(Centroid2Value(10), x)
    assert out[10:20].isnan().all()
    assert torch.equal(out[:10], x[:10]) and torch.equal(out[20:], x[20:])


def test_rows_are_parts_by_themselves() -> None:
    """Of 61 values: no row begins with a whole byte of bins in a flat list."""
    codec, rows = Centroid2Value(16), random_values(3 * 61, torch.float32, 7).view(3, 61)
    parts = codec.encode_rows(rows, 0)
    assert torch.equal(parts, torch.stack([codec.encode(row, 0) for row in rows]))
    out = codec.decode(parts, 61, torch.float32)
    assert torch.equal(out, torch.stack([decoded(codec, row) for row in rows]))


def test_padding_comes_back_as_nothing() -> None:
    """Its value is zero, which is none of the means."""
    indices = torch.tensor([[3, 70, PADDING], [1, 2, 5000]])
    values = torch.tensor([[1.0, -2.0, 0.0], [4.0, 5.0, 6.0]])
    pair, ctx = Pair(Chunk12Index(), Centroid2Value()), context()
    wires = pair.encode_rows(indices, values, 6000, ctx)
    like = Sparse(indices[0], values[0], 6000, padded=True)
    out_indices, out = pair.decode_rows(wires, like, ctx)
    assert torch.equal(out_indices, indices)
    assert out[0, 2] == 0 and (out[1] != 0).all()


def test_small_tensors_do_not_share_a_part() -> None:
    assert not Pair(value=Centroid2Value()).joins
    assert Pair(Chunk12Index(), Centroid2Value()).is_steady


@pytest.mark.parametrize(
    ("at", "data"), [(0, [0, 0, 0, 0]), (4, [1]), (11, [0x3F]), (19, [0xBF]), (24, [0xFF])]
)
def test_what_no_encoder_makes_is_refused(at: int, data: list[int]) -> None:
    """No group, spare settings, means across zero, spare bins."""
    part = Centroid2Value().encode(torch.tensor([1.0, 2.0, -1.0]), 0)
    with pytest.raises(WireFormatError):
        Centroid2Value().decode(with_bytes(part, at, *data), 3, torch.float32)


@pytest.mark.parametrize("group", [0, -1, 2**32, 1.5])
def test_settings_are_checked(group: int) -> None:
    with pytest.raises(RecipeError, match="group"):
        Centroid2Value(group)
