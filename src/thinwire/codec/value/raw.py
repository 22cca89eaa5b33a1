"""Values as they are."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.types import ValueCodec


@dataclass(frozen=True, slots=True)
class RawValue(ValueCodec):
    """The values' own bytes, lossless; decoding is a view."""

    id = 1
    name = "raw"
    lossless = True
    steady = True
    draws = False
    unbiased: ClassVar[bool] = True

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """A view of the values."""
        return as_bytes(values)

    def write_rows(self, values: Tensor, seed: int, parts: Tensor) -> None:
        parts.view(values.dtype).copy_(values)

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """A view of the part."""
        expect_bytes(part, count * dtype.itemsize, f"{count} values of {dtype}")
        return part.view(dtype)

    def size(self, count: int, dtype: torch.dtype) -> int:
        return dtype.itemsize * count

    def error_bound(self, values: Tensor) -> Tensor:
        """None at all."""
        return torch.zeros_like(values, dtype=torch.float64)
