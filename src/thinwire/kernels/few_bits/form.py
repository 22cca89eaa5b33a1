"""How a flat tensor lies in shards of groups, and a shard's bytes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.checksum import checksum_rows
from thinwire.rng import Seed, fingerprint

SMALLEST = 2.0**-100  # of a group's largest magnitude: below it the group waits
NAN_SCALE = 0x7FC0  # a bfloat16: something in the group is not finite
_FLOAT32_MAX = torch.finfo(torch.float32).max
_ALIGN, _WORD = 16, 8  # bytes


@dataclass(frozen=True, slots=True)
class Form:
    """Of a tensor of `numel` elements the shards, in groups that have a scale each.

    The last groups may have fewer elements than the others, or none: zeros take their places.
    With a `rotation`, the seed of its signs, a group travels as H·D·x: D are random signs and H
    is Hadamard's matrix of ±1. The inverse is D·H/group, a power of two: it costs no rounding.
    """

    numel: int
    shards: int
    bits: int  # 4 or 8 of an element
    group: int  # elements, a power of two
    rotation: int | None = None

    @property
    def groups(self) -> int:
        """How many a shard has."""
        return -(-self.numel // (self.shards * self.group))

    @property
    def levels(self) -> int:
        """The largest code; the smallest is its opposite."""
        return (1 << (self.bits - 1)) - 1

    @property
    def largest_scale(self) -> float:
        """A bfloat16, of which `levels` times is still finite in float32."""
        word = torch.tensor(_FLOAT32_MAX / self.levels).view(torch.int32) & ~0xFFFF
        return float(word.view(torch.float32))

    @property
    def group_bytes(self) -> int:
        """Of a group's codes."""
        return self.group * self.bits // 8

    @property
    def code_bytes(self) -> int:
        """Of a shard's codes, which come first; a scale in bfloat16 of each group follows."""
        return self.groups * self.group_bytes

    @property
    def row_bytes(self) -> int:
        """Of a shard: codes, scales, zeros, and the checksum; a multiple of 16."""
        end = self.code_bytes + 2 * self.groups + _WORD
        return -(-end // _ALIGN) * _ALIGN

    def span(self, shard: int) -> tuple[int, int]:
        """From which element to which a shard goes."""
        length = self.groups * self.group
        return min(shard * length, self.numel), min((shard + 1) * length, self.numel)

    def rows(self, count: int, device: torch.device) -> Tensor:
        """Shards' bytes, of which codes and scales are still to be written."""
        rows = torch.empty(count, self.row_bytes, dtype=torch.uint8, device=device)
        rows[:, self.code_bytes + 2 * self.groups :] = 0
        return rows

    def scales(self, rows: Tensor) -> Tensor:
        """The scales in shards' bytes, as bfloat16."""
        first = self.code_bytes
        return rows[:, first : first + 2 * self.groups].view(torch.bfloat16)

    def stamp(self, address: str = "") -> int:
        """What stands for this form and an address (a step, a tensor), in place of a header."""
        form = f"{self.numel}/{self.shards} {self.bits} {self.group} {self.rotation}"
        return fingerprint(f"few bits 2: {form} {address}") >> 23

    def seal(self, rows: Tensor, stamp: Seed) -> None:
        """Write the checksums of rows that are to be read with this stamp."""
        rows.view(torch.int64)[:, -1] = _checksums(rows, stamp)

    def sound(self, rows: Tensor, stamp: Seed) -> Tensor:
        """Whether (0-D, bool) all rows are sealed with this stamp: asks the host nothing."""
        return (rows.view(torch.int64)[:, -1] == _checksums(rows, stamp)).all()


def _checksums(rows: Tensor, stamp: Seed) -> Tensor:
    """Of words counted from the stamp."""
    return checksum_rows(rows.view(torch.int64)[:, :-1], stamp)


def is_power_of_two(number: int) -> bool:
    """Of at least 1."""
    return number > 0 and math.log2(number).is_integer()
