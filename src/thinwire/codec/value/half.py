"""Values in 16 bits, rounded to nearest: what PyTorch's fp16 and bf16 hooks send."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.kernels.narrow import narrow
from thinwire.types import ValueCodec


class HalfValue(ValueCodec):
    """Two bytes per value. Too large a value becomes the largest finite one, not Inf.

    PyTorch's hook makes Inf of 65520 and above, and one such value ruins the step. Here the rest
    is the sender's rounding error like any other: feedback charges it to the residual, and it
    goes out with the next steps.

    |error| ≤ u·|x| + tiny, with u = 2^-11 and tiny = 2^-25 for fp16, 2^-8 and 2^-134 for bf16, and
    |x| - max beyond the largest finite value.
    """

    __slots__ = ()

    half: ClassVar[torch.dtype]
    name: ClassVar[str]
    keeps_zeros = True
    steady = True
    draws = False

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The nearest halves; finite values stay finite."""
        out = torch.empty(values.shape, dtype=self.half, device=values.device)
        return as_bytes(narrow(values[None], out[None])[0])

    def write_rows(self, values: Tensor, seed: int, parts: Tensor) -> None:
        narrow(values, parts.view(self.half))

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The halves, widened."""
        expect_bytes(part, count * 2, f"{count} values in {self.name}")
        return part.view(self.half).to(dtype)

    def size(self, count: int, dtype: torch.dtype) -> int:
        return 2 * count

    def error_bound(self, values: Tensor) -> Tensor:
        """See the class; float64 is rounded by way of float32, which adds 2^-24 of it."""
        form = torch.finfo(self.half)
        size = values.abs().double()
        rounding = size * (form.eps / 2 + 2.0**-23) + form.tiny * form.eps * 0.51
        return rounding + (size - form.max).clamp(min=0)


@dataclass(frozen=True, slots=True)
class Fp16Value(HalfValue):
    """IEEE half precision: 11 significant bits, up to ±65504."""

    id = 2
    name = "fp16"
    half: ClassVar[torch.dtype] = torch.float16


@dataclass(frozen=True, slots=True)
class Bf16Value(HalfValue):
    """bfloat16: 8 significant bits, the range of float32."""

    id = 3
    name = "bf16"
    half: ClassVar[torch.dtype] = torch.bfloat16
