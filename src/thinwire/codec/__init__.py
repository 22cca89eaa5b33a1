"""Selections as bytes: a codec for the indices, a codec for the values, one container for both."""

from thinwire.codec.abc import IndexCodec, ValueCodec
from thinwire.codec.container import Header, Message, pack, unpack
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
from thinwire.codec.registry import (
    INDEX_CODECS,
    VALUE_CODECS,
    index_by_id,
    value_by_id,
)
from thinwire.codec.value.half import Bf16Value, Fp16Value
from thinwire.codec.value.qsgd import QsgdValue
from thinwire.codec.value.raw import RawValue
from thinwire.codec.value.sign import SignValue
from thinwire.codec.value.tern import TernValue

__all__ = [
    "INDEX_CODECS",
    "VALUE_CODECS",
    "Bf16Value",
    "BitmapIndex",
    "EliasFanoIndex",
    "Fp16Value",
    "Header",
    "HuffmanIndex",
    "IndexCodec",
    "Message",
    "Pair",
    "QsgdValue",
    "RawIndex",
    "RawValue",
    "RegionalIndex",
    "RiceIndex",
    "RleIndex",
    "SignValue",
    "TernValue",
    "ValueCodec",
    "VarintIndex",
    "index_by_id",
    "pack",
    "unpack",
    "value_by_id",
]
