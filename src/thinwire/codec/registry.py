"""Codecs by name, for recipes, and by id, for tools that read a wire."""

from collections.abc import Mapping
from typing import TypeVar

from thinwire.codec.abc import IndexCodec, ValueCodec
from thinwire.codec.index import (
    AnsIndex,
    BitmapIndex,
    BloomIndex,
    EliasFanoIndex,
    HuffmanIndex,
    PcoIndex,
    RawIndex,
    RegionalIndex,
    RiceIndex,
    RleIndex,
    VarintIndex,
    ZstdIndex,
)
from thinwire.codec.sketch import CountSketch
from thinwire.codec.value import (
    Bf16Value,
    ChunkedValue,
    DeflateValue,
    FitDexpValue,
    FitPolyValue,
    Fp8Value,
    Fp16Value,
    QsgdValue,
    QuantileValue,
    RawValue,
    SignValue,
    TernValue,
    ThreeLcValue,
    ZstdValue,
)
from thinwire.errors import WireFormatError

_INDEX: tuple[type[IndexCodec], ...] = (
    RawIndex,
    RegionalIndex,
    RiceIndex,
    EliasFanoIndex,
    BitmapIndex,
    VarintIndex,
    RleIndex,
    HuffmanIndex,
    BloomIndex,
    PcoIndex,
    ZstdIndex,
    AnsIndex,
)
_VALUE: tuple[type[ValueCodec], ...] = (
    RawValue,
    Fp16Value,
    Bf16Value,
    SignValue,
    TernValue,
    QsgdValue,
    Fp8Value,
    DeflateValue,
    ZstdValue,
    ChunkedValue,
    QuantileValue,
    FitPolyValue,
    FitDexpValue,
    ThreeLcValue,
)

INDEX_CODECS: dict[str, type[IndexCodec]] = {piece.name: piece for piece in _INDEX}
VALUE_CODECS: dict[str, type[ValueCodec]] = {piece.name: piece for piece in _VALUE}
LINEAR_CODECS: dict[str, type] = {"sketch": CountSketch}

Piece = TypeVar("Piece", IndexCodec, ValueCodec)


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
