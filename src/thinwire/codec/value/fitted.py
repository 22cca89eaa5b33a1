"""Values as a curve: sorted, they are smooth enough for a formula of a few numbers."""

import math
import struct
from typing import Protocol

import torch
from torch import Tensor

from thinwire.codec.value.ranks import pack_ranks, ranks_bytes, unpack_ranks
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.sort_ranks import sort_ranks
from thinwire.types import ValueCodec

_SETTINGS = struct.Struct("<dIHH")  # scale, negatives, bytes of the first formula, of the second


class Formula(Protocol):
    """A way to write down an ascending curve."""

    def measure(self, curve: Tensor, scale: float) -> Tensor:
        """What the formula follows from: few float64 numbers, on the curve's device.

        The curve is 1-D float64 in [0, 1], ascending, divided by `scale`; it has points.
        """

    def write(self, measured: Tensor, count: int) -> Tensor:
        """The bytes for what was measured of `count` points, both on the host."""

    def draw(self, formula: Tensor, count: int, device: torch.device) -> Tensor:
        """The float64 curve of `count` points, on the device. Not necessarily in order.

        It raises `WireFormatError` for bytes that `write` does not make, before it allocates.
        """


class FittedValue(ValueCodec):
    """What DeepReduce's curve fits (section 5) share: the order, the signs and the scale.

    Values are sorted; the magnitudes of the negative ones are one curve and all others a second;
    both are divided by the largest magnitude of all. What a formula draws is clamped to [0, 1], so
    that a value never comes back with another sign or above the largest.

    Each value carries its rank, ⌈log2 count⌉ bits: that is nearly all of the part. Where the index
    codec keeps an order of its own (`raw` does), indices could be sent in the order of the values
    instead, and the ranks would cost nothing; here values come back in the order they were given.

    |error| ≤ the fit's largest on that sign, which only the fit can tell.

    If one value is NaN or Inf, none comes back finite.

    Values stay where they are. From a GPU the host reads twice as it encodes, since the size of the
    part depends on it: the scale and how many are negative, and what was measured of both curves.
    As it decodes it reads the settings, the formulas, and whether the ranks are sound.

    Part: the scale (float64), the number of negative values (u32), the bytes of either formula (u16
    each); the formula of the negative values, that of the others; the ranks.
    """

    __slots__ = ()

    def encode(self: Formula, values: Tensor, seed: int) -> Tensor:
        """The scale, the formulas and the ranks."""
        if values.numel() >= 2**31:
            raise RecipeError(f"{values.numel()} values cannot be sorted; fewer than 2^31 can")
        ascending, ranks = sort_ranks(values)
        scale, curves = _curves(ascending)
        formulas = _formulas(self, curves, scale)
        sizes = [formula.numel() for formula in formulas]
        head = bytearray(_SETTINGS.pack(scale, curves[0].numel(), *sizes))
        front = torch.cat((torch.frombuffer(head, dtype=torch.uint8), *formulas))
        return torch.cat((front.to(values.device), pack_ranks(ranks)))

    def decode(self: Formula, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The curves, in the order that the values had."""
        if part.numel() < _SETTINGS.size:
            raise WireFormatError(f"settings take {_SETTINGS.size} bytes, found {part.numel()}")
        settings = bytes(part[: _SETTINGS.size].tolist())
        scale, negatives, *sizes = _SETTINGS.unpack(settings)
        middle = _SETTINGS.size + sizes[0]
        end = middle + sizes[1]
        if part.numel() != end + ranks_bytes(count):
            raise WireFormatError(
                f"settings, formulas of {sizes} bytes and {count} ranks take "
                f"{end + ranks_bytes(count)} bytes, found {part.numel()} bytes"
            )
        counts = [negatives, count - negatives]
        unfit = any(n < 0 or (n > 0) != (size > 0) for n, size in zip(counts, sizes, strict=True))
        if scale < 0 or unfit:
            raise WireFormatError(f"no such settings: scale {scale}, {counts} values in {sizes}")
        formulas = part[_SETTINGS.size : end].cpu().split(sizes)
        drawn = [self.draw(f, n, part.device) for f, n in zip(formulas, counts, strict=True) if n]
        curve = torch.cat(drawn) if drawn else part.new_zeros(0, dtype=torch.float64)
        curve = curve.nan_to_num_(0).clamp_(0, 1).mul_(scale)
        curve[:negatives] = -curve[:negatives].flip(0)
        return curve.to(dtype).index_select(0, unpack_ranks(part[end:], count))

    def error_bound(self: Formula, values: Tensor) -> Tensor:
        """The largest error of either fit, and a rounding to the values' dtype."""
        ascending, _ = sort_ranks(values)
        scale, curves = _curves(ascending)
        worst = [0.0, 0.0]
        for sign, formula in enumerate(_formulas(self, curves, scale)):
            if count := curves[sign].numel():
                drawn = self.draw(formula, count, values.device).nan_to_num_(0).clamp_(0, 1)
                worst[sign] = float((drawn - curves[sign]).abs().max())
        form = torch.finfo(values.dtype)
        worst_of = torch.tensor(worst, dtype=torch.float64, device=values.device)
        each = worst_of.index_select(0, (values >= 0).int())
        return (each + 2 * form.eps) * scale + form.tiny * form.eps


def _curves(ascending: Tensor) -> tuple[float, tuple[Tensor, Tensor]]:
    """The scale, and the curves of negative and other values; zeros if the scale is not finite."""
    curve = ascending.double()
    if not curve.numel():
        return 0.0, (curve, curve)
    # NaN is sorted last, and greater than any number here.
    top = torch.maximum(curve[0].abs(), curve[-1].abs())
    scale, below = torch.stack((top, (curve < 0).sum().double())).tolist()
    negatives = int(below)
    # By the tensor, since by a plain number CUDA divides with another rounding than the CPU.
    curve = curve / top if math.isfinite(scale) and scale > 0 else torch.zeros_like(curve)
    return scale, (-curve[:negatives].flip(0), curve[negatives:])


def _formulas(formula: Formula, curves: tuple[Tensor, Tensor], scale: float) -> list[Tensor]:
    """The bytes for both curves on the host, none for one without points."""
    measured = [formula.measure(c, scale) if c.numel() else c for c in curves]
    on_host = torch.cat(measured).cpu().split([m.numel() for m in measured])
    return [
        formula.write(m, c.numel()) if c.numel() else m.to(torch.uint8)
        for m, c in zip(on_host, curves, strict=True)
    ]
