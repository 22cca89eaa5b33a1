"""The wire format, version 2: one header, an index part and a value part in one uint8 tensor.

All fields are little-endian.

    offset  size  field
         0     4  magic "THIN"
         4     2  version, 2
         6     1  flags: 1 dense (a plain tensor, no index part), 2 ordered (ascending indices),
                  4 rows (the values are two-dimensional), 8 padded (some indices, of
                  ordered ones the last, may be none), 16 joint (several tensors, see `joint`)
         7     1  dtype of the values: 1 float32, 2 float64
         8     2  index codec id
        10     2  value codec id
        12     4  width: elements that each index stands for
        16     8  numel: elements of the whole flat tensor
        24     8  count: indices, or elements of a dense selection
        32     8  index bytes, before padding
        40     8  value bytes, before padding
        48     8  checksum of everything else, header and padding included
        56     4  step, modulo 2^32
        60     4  tensor: the lower half of its name's `fingerprint`
        64        index part, zero-padded to a multiple of 8
                  value part, zero-padded to a multiple of 8

Parts start at multiples of 8, so that they can be viewed as words in place. `unpack` compares the
claimed sizes with the actual length before anything else, and allocates nothing by a header's
word. Whether `count` fits the parts is for the codecs to check: only they know what an item takes.
Version 1 had its parts at 56, and neither step nor tensor: it can be read, and is refused where
an exchange is under way.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from thinwire.errors import WireFormatError
from thinwire.kernels.checksum import checksum
from thinwire.kernels.kept import kept
from thinwire.kernels.seal import ADDRESS, HEADER_WORDS, SUM, is_sealed, seal
from thinwire.rng import as_signed, fingerprint
from thinwire.types import ExchangeContext

MAGIC = b"THIN"
VERSION = 2
HEADERS = {1: 56, 2: 8 * HEADER_WORDS}  # bytes of each version's
HEADER_BYTES = HEADERS[VERSION]
DTYPES = {1: torch.float32, 2: torch.float64}

_DTYPE_CODES = {dtype: code for code, dtype in DTYPES.items()}
_LAYOUT = struct.Struct("<4sHBBHHIQQQQ")  # everything up to the checksum
_DENSE, _ORDERED, _ROWS, _PADDED, _JOINT = 1, 2, 4, 8, 16


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
    joint: bool = False

    @property
    def rows(self) -> int:
        """How many indices there could be."""
        return self.numel // self.width if self.width else 0


@dataclass(frozen=True, slots=True)
class Address:
    """Of which step and tensor a wire is, 32 bits of each."""

    step: int
    tensor: int

    @property
    def word(self) -> int:
        """Both, as an int64."""
        return as_signed(self.tensor << 32 | self.step)


@lru_cache(maxsize=256)
def address_of(tensor: str, step: int) -> Address:
    """Where the wires of this step of this tensor belong."""
    return Address(step % 2**32, fingerprint(tensor) % 2**32)


def address_on(ctx: ExchangeContext, device: torch.device) -> Tensor:
    """The address of this step of this tensor, a word on the device: see `StepContext.number`."""
    of = ctx.tensor, ctx.step, device
    if of not in ctx.brought:
        ctx.brought[of] = ctx.number(lambda step: address_of(ctx.tensor, step).word, device)
    return ctx.brought[of]


@dataclass(frozen=True, slots=True)
class Message:
    """A wire that proved sound: its header, and views of its parts without their padding."""

    header: Header
    address: Address | None  # None: version 1, which has none
    index_part: Tensor
    value_part: Tensor


class Blank(NamedTuple):
    """Wires to be, one in each row, and where in them the parts go."""

    wires: Tensor
    index_parts: Tensor
    value_parts: Tensor

    @classmethod
    def of(cls, rows: int, index_bytes: int, value_bytes: int, device: torch.device) -> "Blank":
        """Memory for them. Parts start at multiples of 8, in the memory too."""
        value_end = aligned(HEADER_BYTES + index_bytes) + value_bytes
        wires = torch.empty(rows, aligned(value_end), dtype=torch.uint8, device=device)
        return cls(wires, *_parts_of(wires, index_bytes, value_bytes))

    def sealed(self, header: Header, address: Tensor) -> Tensor:
        """The wires, once their parts are in place. On CUDA nothing here waits for the device."""
        check_shape(header)
        index_bytes, value_bytes = self.index_parts.shape[1], self.value_parts.shape[1]
        index_end = HEADER_BYTES + index_bytes
        front = _front(header, index_bytes, value_bytes, self.wires.device)
        gaps = _padding(index_end, aligned(index_end) + value_bytes)
        seal(self.wires, front, address, gaps)
        return self.wires


def pack(header: Header, address: Address, index_part: Tensor, value_part: Tensor) -> Tensor:
    """The wire, on the device of the parts."""
    word = torch.full((), address.word, dtype=torch.int64, device=value_part.device)
    return pack_at(word, header, index_part, value_part)


def pack_at(address: Tensor, header: Header, index_part: Tensor, value_part: Tensor) -> Tensor:
    """As `pack`, of an address that lies on the device."""
    blank = Blank.of(1, index_part.numel(), value_part.numel(), value_part.device)
    blank.index_parts.copy_(index_part[None])
    blank.value_parts.copy_(value_part[None])
    return blank.sealed(header, address)[0]


def unpack_rows(
    wires: Tensor, header: Header, address: Tensor, index_bytes: int, value_bytes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The index and value parts of wires of one length, one in each row, and (0-D, bool) whether
    all are as `pack` makes them of this header. Asks the host nothing.
    """
    front = _front(header, index_bytes, value_bytes, wires.device)
    sound = is_sealed(wires, front, address)
    return *_parts_of(wires, index_bytes, value_bytes), sound


def value_rows(wires: Tensor, index_bytes: int, value_bytes: int) -> Tensor:
    """The value parts of wires of one length, one in each row, unchecked."""
    return _parts_of(wires, index_bytes, value_bytes)[1]


def _parts_of(wires: Tensor, index_bytes: int, value_bytes: int) -> tuple[Tensor, Tensor]:
    index_end = HEADER_BYTES + index_bytes
    value_start = aligned(index_end)
    return wires[:, HEADER_BYTES:index_end], wires[:, value_start : value_start + value_bytes]


def unpack(wire: Tensor) -> Message:
    """What `pack` was given; `WireFormatError` for anything that `pack` did not make."""
    if wire.dtype != torch.uint8 or wire.dim() != 1:
        raise WireFormatError(f"a wire is 1-D uint8, found {wire.dim()}-D {wire.dtype}")
    shortest = min(HEADERS.values())
    if wire.numel() < shortest or wire.numel() % 8:
        raise WireFormatError(
            f"length {wire.numel()} must be a multiple of 8 and at least {shortest}"
        )
    if wire.storage_offset() % 8 or wire.data_ptr() % 8 or not wire.is_contiguous():
        wire = wire.clone(memory_format=torch.contiguous_format)

    # One transfer tells the host all it needs: the header, and the sum of what follows its own.
    words = wire.view(torch.int64)
    rest_sum = checksum(words[SUM + 1 :], first=SUM + 1)
    head = torch.cat((words[:HEADER_WORDS], rest_sum.view(1))).cpu()
    front, stored = head[:SUM], int(head[SUM])
    fields = _LAYOUT.unpack(front.view(torch.uint8).numpy().tobytes())
    magic, version, flags, dtype, index_id, value_id, width, numel, count, *sizes = fields

    if magic != MAGIC:
        raise WireFormatError(f"magic must be {MAGIC!r}, found {magic!r}")
    if version not in HEADERS:
        raise WireFormatError(f"version must be {VERSION}, found {version}")
    index_start = HEADERS[version]
    index_end = index_start + sizes[0]
    value_start = aligned(index_end)
    value_end = value_start + sizes[1]
    if aligned(value_end) != wire.numel():
        raise WireFormatError(
            f"length must be {aligned(value_end)} for parts of {sizes[0]} and {sizes[1]} bytes, "
            f"found {wire.numel()}"
        )
    actual = as_signed(int(checksum(front)) + int(head[-1]))
    if stored != actual:
        raise WireFormatError(
            f"checksum must be {_hex(actual)} for these bytes, found {_hex(stored)}"
        )

    # From here on the bytes are as they were sent, but the sender may still be wrong.
    for start, end in _padding(index_end, value_end):
        if any(padding := wire[start:end].tolist()):
            raise WireFormatError(f"padding must be zero, found {padding}")
    if flags & ~(_DENSE | _ORDERED | _ROWS | _PADDED | _JOINT):
        raise WireFormatError(f"flags must be a sum of 1, 2, 4, 8 and 16, found {flags:#x}")
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
        joint=bool(flags & _JOINT),
    )
    check_shape(header)
    if header.dense and sizes[0] and not header.joint:
        raise WireFormatError(f"flags say dense, found {sizes[0]} bytes of indices")
    address = None
    if version > 1:
        tensor, step = divmod(int(head[ADDRESS]) % 2**64, 2**32)
        address = Address(step, tensor)
    return Message(header, address, wire[index_start:index_end], wire[value_start:value_end])


def check_shape(header: Header) -> None:
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
    if h.padded and (h.dense or h.two_dimensional):
        raise WireFormatError("flags say padded, which only single elements may be")
    if h.joint and (h.padded or h.two_dimensional or not h.ordered):
        raise WireFormatError("flags say joint, which only ordered single elements may be")
    if h.count > h.rows:
        raise WireFormatError(
            f"count must be at most {h.rows}, the rows there are; found {h.count}"
        )


@kept(512)
def _front(header: Header, index_bytes: int, value_bytes: int, device: torch.device) -> Tensor:
    """On the device a header without address, with its own share of the checksum.

    Kept, since bringing it to a GPU makes the host wait, and a unit's header seldom changes.
    """
    front = torch.zeros(HEADER_WORDS, dtype=torch.int64)
    front[:SUM] = _front_words(header, index_bytes, value_bytes)
    front[SUM] = checksum(front)
    return front.to(device)


def _front_words(header: Header, index_bytes: int, value_bytes: int) -> Tensor:
    """The header up to its checksum."""
    flags = _DENSE * header.dense | _ORDERED * header.ordered | _ROWS * header.two_dimensional
    flags |= _PADDED * header.padded | _JOINT * header.joint
    front = _LAYOUT.pack(
        MAGIC, VERSION, flags, _DTYPE_CODES[header.dtype], header.index_id, header.value_id,
        header.width, header.numel, header.count, index_bytes, value_bytes,
    )  # fmt: skip
    return torch.frombuffer(bytearray(front), dtype=torch.int64)


def _padding(*ends: int) -> list[tuple[int, int]]:
    """From where to where there is padding, after parts that end there."""
    return [(end, aligned(end)) for end in ends if end % 8]


def aligned(length: int) -> int:
    return (length + 7) // 8 * 8


def _hex(word: int) -> str:
    return f"{word & (1 << 64) - 1:#018x}"
