"""The two halves of a codec: one for indices, one for values.

`encode` returns a *part*: a 1-D uint8 tensor of any length, which the container frames, aligns to
8 bytes and protects with a checksum.

Decoding depends on the part alone. Settings that the decoder needs travel in the part, so that a
receiver with other settings reads it all the same. `decode` is given what the header says (how
many items there are, and of what kind) and trusts none of it: it compares the part's length with
what so many items take *before* it allocates anything, and raises `WireFormatError` for every
part that `encode` could not have made and that it would otherwise read as something else.

An `id` names a piece on the wire. It is never changed and never given to another piece; 0 is none,
and pieces outside of thinwire take 128 and above.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.types.pieces import Piece


class IndexCodec(Piece):
    """Turns distinct row numbers into bytes and back."""

    __slots__ = ()

    id: ClassVar[int]
    lossless: ClassVar[bool] = True  # the very indices come back, in the order they were given
    steady: ClassVar[bool] = False  # a part's size follows from `count` and `rows`; `decode_rows`
    draws: ClassVar[bool] = True  # what it launches depends on the seed, another in each step

    @abstractmethod
    def encode(self, indices: Tensor, rows: int, ordered: bool) -> Tensor:
        """The part for 1-D int64 `indices` in [0, rows), ascending if `ordered`.

        Whether they are is the caller's promise; checking it would make the host wait for the GPU.
        """

    def encode_seeded(self, indices: Tensor, rows: int, ordered: bool, seed: int) -> Tensor:
        """As `encode`, for a codec that draws: `seed` addresses its randomness."""
        return self.encode(indices, rows, ordered)

    @abstractmethod
    def decode(self, part: Tensor, count: int, rows: int) -> Tensor:
        """The `count` int64 indices, every one in [0, rows)."""

    def size(self, count: int, rows: int) -> int:
        """Bytes of a steady codec's part for ordered indices."""
        raise NotImplementedError(f"{self!r} is not steady")

    def encode_rows(self, indices: Tensor, rows: int) -> Tensor:
        """A steady codec's parts, one in each row, of ascending indices; padding comes last."""
        raise NotImplementedError(f"{self!r} is not steady")

    def write_rows(self, indices: Tensor, rows: int, parts: Tensor) -> None:
        """As `encode_rows`, into memory: rows of bytes, each from a multiple of 8 on.

        Worth overriding where a kernel can write them there.
        """
        parts.copy_(self.encode_rows(indices, rows))

    def takes_any_order(self, rows: int) -> bool:
        """Whether a steady codec's parts may be of indices and padding in any order."""
        return False

    def decode_any_order(self, parts: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        """As `decode_rows` of indices in any order. That none comes twice is not looked at."""
        raise NotImplementedError(f"{self!r} takes ordered indices alone")

    def decode_rows(self, parts: Tensor, count: int, rows: int) -> tuple[Tensor, Tensor]:
        """As `decode` of ordered parts, one in each row, without asking the host.

        Also (0-D, bool) whether all are sound. `PADDING` may come last in each.
        """
        raise NotImplementedError(f"{self!r} is not steady")

    def support(self, part: Tensor, count: int, rows: int) -> Tensor | None:
        """The indices that a receiver of this part takes `count` indices for: their values travel.

        Only asked of codecs that are not `lossless`: these are given ascending indices, and a
        receiver may find others, also ascending. None where the values travel as they are.
        """
        return None


class ValueCodec(Piece):
    """Turns values into bytes and back.

    Values are finite. Where they are not, what comes back is not finite either, at least at the
    same places, so that an overflow on one rank is seen on all of them.
    """

    __slots__ = ()

    id: ClassVar[int]
    lossless: ClassVar[bool] = False  # the very bits come back
    keeps_zeros: ClassVar[bool] = False  # zero comes back as zero, whatever lies beside it
    steady: ClassVar[bool] = False  # a part's size follows from `count`; parts may be rows
    draws: ClassVar[bool] = True  # what it launches depends on the seed, another in each step

    @property
    def joins(self) -> bool:
        """Whether each value is rounded by itself, whatever lies beside it in the part."""
        return self.steady

    @property
    def unbiased(self) -> bool:
        """Over all seeds, the mean of what comes back is what was given."""
        return False

    @abstractmethod
    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The part for 1-D contiguous float32 or float64 `values`; `seed` addresses its randomness.

        The same values and seed give the same bytes on every number of threads.
        """

    def encode_rows(self, values: Tensor, seed: int) -> Tensor:
        """A steady codec's parts, one in each row, of values in rows."""
        return self.encode(values.reshape(-1), seed).view(len(values), -1)

    def write_rows(self, values: Tensor, seed: int, parts: Tensor) -> None:
        """As `encode_rows`, into memory: rows of bytes, each from a multiple of 8 on."""
        parts.copy_(self.encode_rows(values, seed))

    @abstractmethod
    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The `count` values in `dtype`, the one they were given in. May be a view of the part.

        Of a `steady` codec the part may be a matrix: a part, and its values, in each row.
        """

    def size(self, count: int, dtype: torch.dtype) -> int:
        """Bytes of a steady codec's part."""
        raise NotImplementedError(f"{self!r} is not steady")

    @abstractmethod
    def error_bound(self, values: Tensor) -> Tensor:
        """For each of `values`, in float64, the most that |decoded - value| can be."""
