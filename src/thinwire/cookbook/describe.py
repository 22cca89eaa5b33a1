"""What saved payloads hold, as plain data: one payload, or several back to back."""

import struct
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from thinwire.codec.container import HEADERS, MAGIC, Header, Message, unpack
from thinwire.codec.index.bloom import BloomIndex, settings_of
from thinwire.codec.joint import table_of
from thinwire.codec.pair import open_message
from thinwire.cookbook.registry import piece_by_id
from thinwire.errors import ThinwireError
from thinwire.types import Selection, Sparse

FIRST = 4  # entries that are described one by one
_VERSION, _SIZES = struct.Struct("<H"), struct.Struct("<QQ")
_VERSION_AT, _SIZES_AT, _CHECKSUM_AT = 4, 32, 48  # as `container` lays the header out

Described = dict[str, Any]


def describe_all(data: bytearray) -> Iterator[Described]:
    """Each payload, sound or broken: a broken one has a `reason` in place of contents."""
    start = 0
    while start < len(data):
        end = _claimed_end(data, start)
        described: Described = {"offset": start, "bytes": end - start, "ok": True}
        try:
            described |= describe(torch.frombuffer(data[start:end], dtype=torch.uint8))
        except ThinwireError as error:
            described |= {"ok": False, "reason": str(error)}
        yield described
        start = end


def describe(wire: Tensor) -> Described:
    """What is in a wire; `ThinwireError` where it is none, or needs a package that is not here."""
    message = unpack(wire)
    h = message.header
    index, value = piece_by_id("index", h.index_id), piece_by_id("value", h.value_id)
    items = h.count * h.width
    if h.joint:  # which tensors share it is not in it, nor where their elements are
        index_bytes = sum(row[1] for row in table_of(message))
        value_bytes, first = message.value_part.numel() - index_bytes, []
    else:
        index_bytes, value_bytes = message.index_part.numel(), message.value_part.numel()
        first = _first(open_message(message, index(), value()))
    return {
        "kind": _kind(h),
        "index": None if h.dense else index.name,
        "value": value.name,
        "dtype": str(h.dtype).removeprefix("torch."),
        "numel": h.numel,
        "count": h.count,
        "width": h.width,
        "ordered": h.ordered,
        "index_bytes": index_bytes,
        "value_bytes": value_bytes,
        "bits_per_index": None if h.dense or not h.count else 8 * index_bytes / h.count,
        "bits_per_value": 8 * value_bytes / items if items else None,
        "bits_of_dense": 8 * wire.numel() / h.numel if h.numel else None,
        "checksum": "0x" + wire[_CHECKSUM_AT : _CHECKSUM_AT + 8].numpy().tobytes()[::-1].hex(),
        "step": message.address and message.address.step,
        "tensor": message.address and f"{message.address.tensor:#010x}",
        "settings": _settings(message),
        "first": first,
    }


def _kind(h: Header) -> str:
    form = "dense" if h.dense else "rows" if h.two_dimensional else "sparse"
    return f"joint {form}" if h.joint else form


def _settings(message: Message) -> str | None:
    """What an approximate index part says of itself."""
    h = message.header
    if h.index_id != BloomIndex.id or h.dense or h.joint:
        return None
    filter, policy = settings_of(message.index_part, message.header.rows)
    return f"{policy}, {filter.size} bits, {filter.hashes} hashes, salt {filter.salt:#x}"


def _first(selection: Selection) -> list[list[Any]]:
    """The first entries: index and value, or index and row."""
    if isinstance(selection, Sparse):
        pairs = zip(selection.indices[:FIRST], selection.values[:FIRST], strict=True)
        return [[int(i), v.tolist()] for i, v in pairs]
    return [[i, v] for i, v in enumerate(selection[:FIRST].tolist())]


def _claimed_end(data: bytearray, start: int) -> int:
    """Where the wire says that it ends; else at the next that may be one, or with the file."""
    if data[start : start + 4] == MAGIC and start + min(HEADERS.values()) <= len(data):
        (version,) = _VERSION.unpack_from(data, start + _VERSION_AT)
        sizes: tuple[int, int] = _SIZES.unpack_from(data, start + _SIZES_AT)
        end = start + HEADERS.get(version, 0) + sum((size + 7) // 8 * 8 for size in sizes)
        if version in HEADERS and end <= len(data):
            return end
    following = data.find(MAGIC, start + 1)
    return len(data) if following < 0 else following
