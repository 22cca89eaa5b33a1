"""Codecs by name and by id."""

import pytest

from support.codec.cases import LEFT_OUT, at_hand
from thinwire.codec import Bf16Value, RawIndex
from thinwire.cookbook.registry import piece_by_id, pieces
from thinwire.errors import WireFormatError
from thinwire.types import IndexCodec, ValueCodec


def test_names_and_ids_are_one_to_one() -> None:
    for table in (pieces("index"), pieces("value")):
        assert all(piece.name == name for name, piece in table.items())
        assert len({piece.id for piece in table.values()}) == len(table)
        assert all(0 < piece.id < 2**16 for piece in table.values())


def test_every_piece_keeps_its_protocol() -> None:
    assert all(isinstance(piece, IndexCodec) for piece in at_hand(pieces("index")).values())
    assert all(isinstance(piece, ValueCodec) for piece in at_hand(pieces("value")).values())


def test_ids_are_frozen() -> None:
    """The wire names codecs by these numbers: they never change and are never used again."""
    assert {name: piece.id for name, piece in pieces("value").items()}.items() >= {
        "raw": 1, "fp16": 2, "bf16": 3, "sign": 4, "tern": 5, "qsgd": 6, "fp8": 7, "deflate": 8,
        "zstd": 9, "chunked": 10, "quantile": 11, "fit_poly": 12, "fit_dexp": 13,
        "3lc": 14,
    }.items()  # fmt: skip
    assert {name: piece.id for name, piece in pieces("index").items()}.items() >= {
        "raw": 1, "regional": 2, "rice": 3, "elias_fano": 4, "bitmap": 5, "varint": 6, "rle": 7,
        "huffman": 8, "bloom": 9, "pco": 10, "zstd": 11, "ans": 12,
    }.items()  # fmt: skip


def test_by_id() -> None:
    assert piece_by_id("value", 3) is Bf16Value
    assert piece_by_id("index", 1) is RawIndex
    with pytest.raises(WireFormatError, match="999"):
        piece_by_id("value", 999)
    with pytest.raises(WireFormatError, match="999"):
        piece_by_id("index", 999)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_codec_without_its_package_is_not_tried(name: str) -> None:
    pytest.skip(LEFT_OUT[name])
