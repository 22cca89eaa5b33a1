"""The wire format, version 1: one header, an index part and a value part in one uint8 tensor.

All fields are little-endian.

    offset  size  field
         0     4  magic "THIN"
         4     2  version, 1
         6     1  flags: 1 dense (a plain tensor, no index part), 2 ordered (ascending indices),
                  4 rows (the values are two-dimensional), 8 padded (the last indices may be none)
         7     1  dtype of the values: 1 float32, 2 float64
         8     2  index codec id
        10     2  value codec id
        12     4  width: elements that each index stands for
        16     8  numel: elements of the whole flat tensor
        24     8  count: indices, or elements of a dense selection
        32     8  index bytes, before padding
        40     8  value bytes, before padding
        48     8  checksum of everything else, header and padding included
        56        index part, zero-padded to a multiple of 8
                  value part, zero-padded to a multiple of 8

Parts start at multiples of 8, so that they can be viewed as words in place. `unpack` compares the
claimed sizes with the actual length before anything else, and allocates nothing by a header's
word. Whether `count` fits the parts is for the codecs to check: only they know what an item takes.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.kernels.checksum import checksum, checksum_rows
from thinwire.rng import as_signed

MAGIC = b"THIN"
VERSION = 1
HEADER_BYTES = 56
DTYPES = {1: torch.float32, 2: torch.float64}

_DTYPE_CODES = {dtype: code for code, dtype in DTYPES.items()}
_LAYOUT = struct.Struct("<4sHBBHHIQQQQ")  # everything but the checksum, which is the last word
_HEADER_WORDS = HEADER_BYTES // 8
_DENSE, _ORDERED, _ROWS, _PADDED = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Header:
    """What the parts are: who made them, and of what kind of selection."""

    index_id: int
    value_id: int
    dtype: torch.dtype
    numel: int
    count: int
    width: int = 1
    dense: bool = False
    ordered: bool = True
    two_dimensional: bool = False
    padded: bool = False

    @property
    def rows(self) -> int:
        """How many indices there could be."""
        return self.numel // self.width if self.width else 0


@dataclass(frozen=True, slots=True)
class Message:
    """A wire that proved sound: its header, and views of its parts without their padding."""

    header: Header
    index_part: Tensor
    value_part: Tensor


def pack(header: Header, index_part: Tensor, value_part: Tensor) -> Tensor:
    """The wire, on the device of the parts. On CUDA nothing here waits for the device."""
    return pack_rows(header, index_part[None], value_part[None])[0]


def pack_rows(header: Header, index_parts: Tensor, value_parts: Tensor) -> Tensor:
    """As `pack`, a wire in each row."""
    _check_shape(header)
    index_bytes, value_bytes = index_parts.shape[1], value_parts.shape[1]
    index_end = HEADER_BYTES + index_bytes
    value_start = _aligned(index_end)
    value_end = value_start + value_bytes
    form = len(value_parts), _aligned(value_end)
    wires = torch.empty(form, dtype=torch.uint8, device=value_parts.device)
    wires[:, HEADER_BYTES:index_end] = index_parts
    wires[:, value_start:value_end] = value_parts
    for start, end in _padding(index_end, value_end):
        wires[:, start:end] = 0
    words = wires.view(torch.int64)
    front, front_sum = _front(header, index_bytes, value_bytes, wires.device)
    words[:, : _HEADER_WORDS - 1] = front
    sums = checksum_rows(words[:, _HEADER_WORDS:], first=_HEADER_WORDS)
    torch.add(sums, front_sum, out=words[:, _HEADER_WORDS - 1])
    return wires


def unpack_rows(
    wires: Tensor, header: Header, index_bytes: int, value_bytes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The index and value parts of wires of one length, one in each row, and (0-D, bool) whether
    all are as `pack` makes them of this header. Asks the host nothing.
    """
    words = wires.view(torch.int64)
    front, front_sum = _front(header, index_bytes, value_bytes, wires.device)
    sums = checksum_rows(words[:, _HEADER_WORDS:], first=_HEADER_WORDS) + front_sum
    sealed = (words[:, _HEADER_WORDS - 1] == sums).all()
    sound = sealed & (words[:, : _HEADER_WORDS - 1] == front).all()
    index_parts = wires[:, HEADER_BYTES : HEADER_BYTES + index_bytes]
    return index_parts, value_rows(wires, index_bytes, value_bytes), sound


def value_rows(wires: Tensor, index_bytes: int, value_bytes: int) -> Tensor:
    """The value parts of wires of one length, one in each row, unchecked."""
    start = _aligned(HEADER_BYTES + index_bytes)
    return wires[:, start : start + value_bytes]


def unpack(wire: Tensor) -> Message:
    """What `pack` was given; `WireFormatError` for anything that `pack` did not make."""
    if wire.dtype != torch.uint8 or wire.dim() != 1:
        raise WireFormatError(f"a wire is 1-D uint8, found {wire.dim()}-D {wire.dtype}")
    if wire.numel() < HEADER_BYTES or wire.numel() % 8:
        raise WireFormatError(
            f"length {wire.numel()} must be a multiple of 8 and at least {HEADER_BYTES}"
        )
    if wire.storage_offset() % 8 or wire.data_ptr() % 8 or not wire.is_contiguous():
        wire = wire.clone(memory_format=torch.contiguous_format)

    # One transfer tells the host all it needs: the header, and the sum that the parts do have.
    words = wire.view(torch.int64)
    body_sum = checksum(words[_HEADER_WORDS:], first=_HEADER_WORDS)
    head = torch.cat((words[:_HEADER_WORDS], body_sum.view(1))).cpu()
    front, stored = head[: _HEADER_WORDS - 1], int(head[_HEADER_WORDS - 1])
    fields = _LAYOUT.unpack(front.view(torch.uint8).numpy().tobytes())
    magic, version, flags, dtype, index_id, value_id, width, numel, count, *sizes = fields

    if magic != MAGIC:
        raise WireFormatError(f"magic must be {MAGIC!r}, found {magic!r}")
    if version != VERSION:
        raise WireFormatError(f"version must be {VERSION}, found {version}")
    index_end = HEADER_BYTES + sizes[0]
    value_start = _aligned(index_end)
    value_end = value_start + sizes[1]
    if _aligned(value_end) != wire.numel():
        raise WireFormatError(
            f"length must be {_aligned(value_end)} for parts of {sizes[0]} and {sizes[1]} bytes, "
            f"found {wire.numel()}"
        )
    actual = as_signed(int(checksum(front)) + int(head[_HEADER_WORDS]))
    if stored != actual:
        raise WireFormatError(
            f"checksum must be {_hex(actual)} for these bytes, found {_hex(stored)}"
        )

    # From here on the bytes are as they were sent, but the sender may still be wrong.
    for start, end in _padding(index_end, value_end):
        if any(padding := wire[start:end].tolist()):
            raise WireFormatError(f"padding must be zero, found {padding}")
    if flags & ~(_DENSE | _ORDERED | _ROWS | _PADDED):
        raise WireFormatError(f"flags must be a sum of 1, 2, 4 and 8, found {flags:#x}")
    if dtype not in DTYPES:
        raise WireFormatError(f"dtype must be one of {sorted(DTYPES)}, found {dtype}")
    header = Header(
        index_id=index_id,
        value_id=value_id,
        dtype=DTYPES[dtype],
        numel=numel,
        count=count,
        width=width,
        dense=bool(flags & _DENSE),
        ordered=bool(flags & _ORDERED),
        two_dimensional=bool(flags & _ROWS),
        padded=bool(flags & _PADDED),
    )
    _check_shape(header)
    if header.dense and sizes[0]:
        raise WireFormatError(f"flags say dense, found {sizes[0]} bytes of indices")
    return Message(header, wire[HEADER_BYTES:index_end], wire[value_start:value_end])


def _check_shape(header: Header) -> None:
    """Refuse a header whose numbers contradict each other, on the way out as on the way in."""
    h = header
    if h.numel >= 2**63:
        raise WireFormatError(f"numel must be below 2^63, found {h.numel}")
    if h.width >= 2**32 or (h.width != 1 and not h.two_dimensional) or h.rows * h.width != h.numel:
        raise WireFormatError(f"width {h.width} does not fit numel {h.numel}")
    if h.dense and (h.count != h.numel or h.two_dimensional or not h.ordered):
        raise WireFormatError(
            f"flags say dense, found count {h.count} of {h.numel}, ordered={h.ordered}, "
            f"two_dimensional={h.two_dimensional}"
        )
    if h.padded and (not h.ordered or h.dense or h.two_dimensional):
        raise WireFormatError("flags say padded, which only ordered elements may be")
    if h.count > h.rows:
        raise WireFormatError(
            f"count must be at most {h.rows}, the rows there are; found {h.count}"
        )


@lru_cache(maxsize=4096)
def _front(
    header: Header, index_bytes: int, value_bytes: int, device: torch.device
) -> tuple[Tensor, int]:
    """The header up to its checksum, on the device, and its share of the checksum.

    Kept, since bringing it to a GPU makes the host wait, and a unit's header seldom changes.
    """
    front = _front_words(header, index_bytes, value_bytes)
    return front.to(device), int(checksum(front))


def _front_words(header: Header, index_bytes: int, value_bytes: int) -> Tensor:
    """The header up to its checksum, on the host."""
    flags = _DENSE * header.dense | _ORDERED * header.ordered | _ROWS * header.two_dimensional
    flags |= _PADDED * header.padded
    front = _LAYOUT.pack(
        MAGIC, VERSION, flags, _DTYPE_CODES[header.dtype], header.index_id, header.value_id,
        header.width, header.numel, header.count, index_bytes, value_bytes,
    )  # fmt: skip
    return torch.frombuffer(bytearray(front), dtype=torch.int64)


def _padding(*ends: int) -> list[tuple[int, int]]:
    """From where to where there is padding, after parts that end there."""
    return [(end, _aligned(end)) for end in ends if end % 8]


def _aligned(length: int) -> int:
    return (length + 7) // 8 * 8


def _hex(word: int) -> str:
    return f"{word & (1 << 64) - 1:#018x}"
