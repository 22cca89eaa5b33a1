"""Codecs by name and by id."""

import pytest

from thinwire.codec import (
    INDEX_CODECS,
    VALUE_CODECS,
    Bf16Value,
    IndexCodec,
    Pair,
    QsgdValue,
    RawIndex,
    RawValue,
    ValueCodec,
    codec,
    index_by_id,
    make,
    value_by_id,
)
from thinwire.errors import RecipeError, WireFormatError


def test_names_and_ids_are_one_to_one() -> None:
    for table in (INDEX_CODECS, VALUE_CODECS):
        assert all(piece.name == name for name, piece in table.items())
        assert len({piece.id for piece in table.values()}) == len(table)
        assert all(0 < piece.id < 2**16 for piece in table.values())


def test_every_piece_keeps_its_protocol() -> None:
    assert all(isinstance(piece(), IndexCodec) for piece in INDEX_CODECS.values())
    assert all(isinstance(piece(), ValueCodec) for piece in VALUE_CODECS.values())


def test_ids_are_frozen() -> None:
    """The wire names codecs by these numbers: they never change and are never used again."""
    assert {name: piece.id for name, piece in VALUE_CODECS.items()}.items() >= {
        "raw": 1, "fp16": 2, "bf16": 3, "sign": 4, "tern": 5, "qsgd": 6,
    }.items()  # fmt: skip
    assert INDEX_CODECS["raw"].id == 1


def test_by_id() -> None:
    assert value_by_id(3) is Bf16Value
    assert index_by_id(1) is RawIndex
    with pytest.raises(WireFormatError, match="999"):
        value_by_id(999)
    with pytest.raises(WireFormatError, match="999"):
        index_by_id(999)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("raw", Pair()),
        ("raw+raw", Pair(RawIndex(), RawValue())),
        ("raw+bf16", Pair(RawIndex(), Bf16Value())),
        ("bf16", Pair(RawIndex(), Bf16Value())),
        (" raw + qsgd ", Pair(RawIndex(), QsgdValue())),
    ],
)
def test_spec(spec: str, expected: Pair) -> None:
    assert codec(spec) == expected


@pytest.mark.parametrize("spec", ["", "zip", "raw+zip", "zip+raw", "bf16+raw", "raw+raw+raw", "+"])
def test_unknown_specs_name_the_known(spec: str) -> None:
    with pytest.raises(RecipeError) as refusal:
        codec(spec)
    assert "raw" in str(refusal.value)
    assert "qsgd" in str(refusal.value) or "index" in str(refusal.value)


def test_make_hands_settings_to_the_piece_that_has_them() -> None:
    assert make("raw", "qsgd", bits=4, bucket=64) == Pair(RawIndex(), QsgdValue(bits=4, bucket=64))
    assert make(RawIndex(), QsgdValue(bits=5)) == Pair(RawIndex(), QsgdValue(bits=5))
    with pytest.raises(RecipeError, match="bits"):
        make("raw", "bf16", bits=4)
    with pytest.raises(RecipeError, match="bits"):
        make("raw", QsgdValue(), bits=4)
    with pytest.raises(RecipeError, match="known"):
        make("raw", "zip")
