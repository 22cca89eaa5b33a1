"""What codecs for ascending indices share: words, checks, and a way out for other orders."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.index.raw import RawIndex
from thinwire.errors import RecipeError, WireFormatError
from thinwire.types import IndexCodec

MOST_ROWS = 2**32  # for codecs whose time or size grows with the rows: half a gigabyte of bits
ASCENDING, AS_GIVEN = 0, 1


class AscendingIndex(IndexCodec):
    """An index codec that writes gaps or bits, and therefore ascending indices only.

    Indices in any other order are sent raw, in the order given: an order of k among n costs
    log2(k!) bits on top of the set's entropy, k·log2(n) together, which is what raw indices take.
    DeepReduce's reorder mapping (section 5, ⌈log2 k⌉ bits each) would save nothing. Sort the
    selection first (`Sparse.sorted`) to save what the codec can save.

    Part: the body, then one byte: 0 ascending, 1 raw.
    """

    __slots__ = ()
    id: ClassVar[int]
    name: ClassVar[str]

    def encode(self, indices: Tensor, rows: int, ordered: bool) -> Tensor:
        """The body in this codec's form where the indices ascend, else raw."""
        body = (
            self._encode(indices.contiguous(), rows)
            if ordered
            else RawIndex().encode(indices, rows, ordered)
        )
        # Copied and not concatenated: of unaligned lengths that takes four times as long on CUDA.
        part = body.new_empty(body.numel() + 1)
        part[:-1] = body
        part[-1:].fill_(ASCENDING if ordered else AS_GIVEN)
        return part

    def decode(self, part: Tensor, count: int, rows: int) -> Tensor:
        """The indices, from a body of either form."""
        if not 0 <= count <= rows:
            raise WireFormatError(f"{count} distinct indices cannot be in [0, {rows})")
        form = int(part[-1]) if part.numel() else -1
        if form == ASCENDING:
            return self._decode(part[:-1], count, rows)
        if form == AS_GIVEN:
            return RawIndex().decode(part[:-1], count, rows)
        raise WireFormatError(f"the last byte must be 0 (ascending) or 1 (raw), found {form}")

    @abstractmethod
    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        """The body for ascending, contiguous indices."""

    @abstractmethod
    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        """The ascending indices that make this body."""


def check_order(sound: bool, rows: int) -> None:
    """Tell a sender whose promise did not hold."""
    if not sound:
        raise RecipeError(f"indices that are said to be ordered must ascend and be in [0, {rows})")


def check_on_cpu(indices: Tensor, rows: int) -> None:
    """Look whether they ascend, where that makes nobody wait: kernels trust them with memory."""
    if indices.numel() and indices.device.type == "cpu":
        inside = int(indices[0]) >= 0 and int(indices[-1]) < rows
        check_order(inside and bool((indices[1:] > indices[:-1]).all()), rows)


def refuse_rows(rows: int, error: type[RecipeError] | type[WireFormatError]) -> None:
    """Refuse more rows than a codec that looks at every one of them should be given."""
    if rows > MOST_ROWS:
        raise error(f"this codec looks at every row; {rows} are more than {MOST_ROWS}")


def with_proof(body: bytes, count: int) -> bytes:
    """The body with zeros in front, if it takes less than a byte for every 1,024 indices.

    Equal gaps may take nothing at all; a receiver makes room for `count` of them on no one's word.
    """
    return bytes(_proof(count) - len(body)) + body if len(body) < _proof(count) else body


def without_proof(body: Tensor, length: int, count: int) -> Tensor:
    """The last `length` bytes: all there are, but for the zeros that `with_proof` puts in front."""
    zeros = body[: max(0, body.numel() - length)]
    if body.numel() != max(length, _proof(count)) or bool(zeros.any()):
        raise WireFormatError(
            f"{length} bytes for {count} indices must fill {max(length, _proof(count))} bytes, "
            f"the first of them zero; found {body.numel()}"
        )
    return body[zeros.numel() :]


def _proof(count: int) -> int:
    return -(-count // 1024)


def as_words(body: Tensor) -> Tensor:
    """The body as int64 words."""
    if body.numel() % 8:
        raise WireFormatError(f"words take a multiple of 8 bytes, found {body.numel()} bytes")
    aligned = body.storage_offset() % 8 == 0 and body.data_ptr() % 8 == 0
    return (body if aligned else body.clone()).view(torch.int64)


def from_gaps(gaps: Tensor, rows: int) -> Tensor:
    """The indices that come after so many others were left out, each ≥ 0.

    A sum that passes 2^63 shows: the first one to do so is negative.
    """
    indices = (gaps + 1).cumsum(0) - 1
    if indices.numel():
        low, last = torch.stack((indices.amin(), indices[-1])).tolist()
        if low < 0 or last >= rows:
            raise WireFormatError(f"gaps must lead to indices in [0, {rows})")
    return indices


def to_gaps(indices: Tensor, rows: int) -> Tensor:
    """How many rows each index leaves out after the one before it."""
    gaps = indices.diff(prepend=indices.new_full((1,), -1)) - 1
    if indices.numel():
        check_order(int(gaps.amin()) >= 0 and int(indices[-1]) < rows, rows)
    return gaps
