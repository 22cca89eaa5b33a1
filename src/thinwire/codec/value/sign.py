"""One bit per value: the sign, and one scale for all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels._numeric import row_sums
from thinwire.kernels.pack_bits import pack_bits, packed_bytes, unpack_bits
from thinwire.types import ValueCodec


@dataclass(frozen=True, slots=True)
class SignValue(ValueCodec):
    """±mean|x|: SignSGD (Bernstein et al., ICML 2018) with the scale of EF-SignSGD.

    The scale ‖x‖₁/d (Karimireddy et al., ICML 2019) makes it a contraction that error feedback
    can work with: ‖x - C(x)‖² = ‖x‖² - ‖x‖₁²/d. It is biased.

    One bit has no room for sign(0) = 0: zeros (of either sign) come back as +scale, and feedback
    takes that back in the next step. The identity above holds with zeros too.

    Part: the scale as float64, then the bits, 1 for negative.
    """

    id = 4
    name = "sign"

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The scale and the signs."""
        return torch.cat((as_bytes(_mean_size(values)), pack_bits((values < 0).int(), 1)))

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """±scale."""
        expect_bytes(part, 8 + packed_bytes(count, 1), f"a scale and {count} signs")
        scale = part[:8].view(torch.float64)
        if bool(scale < 0):
            raise WireFormatError(f"the scale must not be negative, found {scale.item()}")
        negative = unpack_bits(part[8:], count, 1)
        return (1 - 2 * negative).to(dtype) * scale.to(dtype)

    def error_bound(self, values: Tensor) -> Tensor:
        """How far |x| is from the scale, and the rounding of the scale to the values' dtype."""
        scale = _mean_size(values)
        rounding = torch.finfo(values.dtype).eps * scale + torch.finfo(values.dtype).tiny
        return (values.abs().double() - scale).abs() + rounding


def _mean_size(values: Tensor) -> Tensor:
    # Scaled before it is summed: the sum of large float64 values would overflow. And multiplied,
    # not divided: by a plain number CUDA divides with another rounding than the CPU.
    share = values.abs().double() * (1 / max(1, values.numel()))
    return row_sums(share.view(1, -1))
