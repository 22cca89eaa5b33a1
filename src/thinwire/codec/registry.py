"""Codecs by name, for recipes, and by id, for tools that read a wire."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from thinwire.codec.abc import IndexCodec, ValueCodec
from thinwire.codec.index import (
    BitmapIndex,
    EliasFanoIndex,
    HuffmanIndex,
    RawIndex,
    RegionalIndex,
    RiceIndex,
    RleIndex,
    VarintIndex,
)
from thinwire.codec.pair import Pair
from thinwire.codec.value.half import Bf16Value, Fp16Value
from thinwire.codec.value.qsgd import QsgdValue
from thinwire.codec.value.raw import RawValue
from thinwire.codec.value.sign import SignValue
from thinwire.codec.value.tern import TernValue
from thinwire.errors import RecipeError, WireFormatError

_INDEX: tuple[type[IndexCodec], ...] = (
    RawIndex,
    RegionalIndex,
    RiceIndex,
    EliasFanoIndex,
    BitmapIndex,
    VarintIndex,
    RleIndex,
    HuffmanIndex,
)
_VALUE: tuple[type[ValueCodec], ...] = (
    RawValue,
    Fp16Value,
    Bf16Value,
    SignValue,
    TernValue,
    QsgdValue,
)

INDEX_CODECS: dict[str, type[IndexCodec]] = {piece.name: piece for piece in _INDEX}
VALUE_CODECS: dict[str, type[ValueCodec]] = {piece.name: piece for piece in _VALUE}

Piece = TypeVar("Piece", IndexCodec, ValueCodec)


def codec(spec: str) -> Pair:
    """The codec that `"index+value"` names. One name alone leaves the other half raw.

    >>> codec("raw+bf16") == codec("bf16")
    True
    """
    names = [name.strip() for name in spec.split("+")]
    if len(names) == 2:
        return make(*names)
    if len(names) == 1 and names[0] in VALUE_CODECS:
        return make("raw", names[0])
    if len(names) == 1 and names[0] in INDEX_CODECS:
        return make(names[0], "raw")
    raise RecipeError(
        f"codec {spec!r} must be 'index+value' or one of the two; known index codecs: "
        f"{', '.join(INDEX_CODECS)}; known value codecs: {', '.join(VALUE_CODECS)}"
    )


def make(index: str | IndexCodec, value: str | ValueCodec, **settings: Any) -> Pair:
    """A pair of pieces, or of names; each setting goes to the named piece that has it.

    >>> make("raw", "qsgd", bits=4) == Pair(value=QsgdValue(bits=4))
    True
    """
    index_settings = _settings_of(INDEX_CODECS, index, settings)
    value_settings = _settings_of(VALUE_CODECS, value, settings)
    for name in settings:
        takers = (name in index_settings) + (name in value_settings)
        if takers != 1:
            raise RecipeError(
                f"{name}={settings[name]!r} is a setting of {'both' if takers else 'neither'} "
                f"of {index!r} and {value!r}"
            )
    return Pair(
        INDEX_CODECS[index](**index_settings) if isinstance(index, str) else index,
        VALUE_CODECS[value](**value_settings) if isinstance(value, str) else value,
    )


def index_by_id(id: int) -> type[IndexCodec]:
    """The index codec that a wire calls `id`."""
    return _by_id(INDEX_CODECS, id)


def value_by_id(id: int) -> type[ValueCodec]:
    """The value codec that a wire calls `id`."""
    return _by_id(VALUE_CODECS, id)


def _by_id(table: Mapping[str, type[Piece]], id: int) -> type[Piece]:
    for piece in table.values():
        if piece.id == id:
            return piece
    known = {name: piece.id for name, piece in table.items()}
    raise WireFormatError(f"codec id {id} is unknown; known: {known}")


def _settings_of(
    table: Mapping[str, type[Piece]], piece: str | Piece, settings: dict[str, Any]
) -> dict[str, Any]:
    """Those of `settings` that the named piece has; one that is already made takes none."""
    if not isinstance(piece, str):
        return {}
    if piece not in table:
        kind = "index" if table is INDEX_CODECS else "value"
        raise RecipeError(f"unknown {kind} codec {piece!r}; known: {', '.join(table)}")
    named = {field.name for field in fields(cast(Any, table[piece]))}
    return {name: setting for name, setting in settings.items() if name in named}
