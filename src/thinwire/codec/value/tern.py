"""1.6 bits per value: -1, 0 or 1 times the largest magnitude."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.quantise import quantise
from thinwire.types import ValueCodec

TRITS = 5  # in a byte, since 3^5 = 243 ≤ 256
_PLACES = (1, 3, 9, 27, 81)


@dataclass(frozen=True, slots=True)
class TernValue(ValueCodec):
    """TernGrad (Wen et al., NeurIPS 2017): sign(x)·m with probability |x|/m, else 0; m = max|x|.

    Unbiased, to 2^-24 of m, the grain of the random numbers. |error| ≤ m, and its variance is
    |x|·(m - |x|).

    Deviations from the paper: m is each sender's own, since gathered payloads need no common one;
    clipping at 2.5σ, which is biased, is left to whoever prepares the gradient; and five digits
    share a byte (1.6 bits each; log2 3 = 1.58) where the paper's code takes two bits.

    Part: m as float64, then the bytes; digits 0, 1, 2 stand for 0, +m, -m, lowest place first.
    """

    id = 5
    name = "tern"
    unbiased: ClassVar[bool] = True

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The largest magnitude and the digits."""
        largest = _largest(values)
        chance = values.abs() / torch.where(largest == 0, 1, largest)
        drawn = quantise(chance.nan_to_num_(0), seed)  # any digit will do if m is not finite
        digits = drawn.to(torch.uint8) << (values < 0).to(torch.uint8)
        groups = pad(digits, (0, -digits.numel() % TRITS)).view(-1, TRITS)
        packed = groups[:, 0].clone()
        for lane in range(1, TRITS):
            packed += groups[:, lane] * _PLACES[lane]
        return torch.cat((as_bytes(largest.double().view(1)), packed))

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """-m, 0 or m."""
        expect_bytes(part, 8 + (count + TRITS - 1) // TRITS, f"a scale and {count} digits")
        scale, packed = part[:8].view(torch.float64), part[8:]
        if bool(scale < 0) or bool((packed >= 3**TRITS).any()):
            raise WireFormatError(
                f"digits must be bytes below {3**TRITS} and the scale not negative, "
                f"found {scale.item()} and bytes up to {int(packed.max()) if count else 0}"
            )
        places = torch.tensor(_PLACES, device=part.device)
        digits = torch.arange(3**TRITS, device=part.device)[:, None] // places % 3
        table = torch.where(digits == 2, -1, digits).to(dtype)
        signs = table.index_select(0, packed.int()).view(-1)
        if bool(signs[count:].any()):
            raise WireFormatError(f"the spare digits after {count} values are not zero")
        return signs[:count] * scale.to(dtype)

    def error_bound(self, values: Tensor) -> Tensor:
        """The largest magnitude, for each value."""
        return _largest(values).double().expand(values.shape)


def _largest(values: Tensor) -> Tensor:
    return values.abs().amax() if values.numel() else values.new_zeros(())
