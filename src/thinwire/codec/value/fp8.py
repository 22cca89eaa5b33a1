"""Values in eight bits of floating point, under a scale for each chunk."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.codec.value.chunks import check_chunk, join, take_apart
from thinwire.errors import WireFormatError
from thinwire.kernels.chunk_codes.chunks import (
    LARGEST,
    each_value,
    in_chunks,
    largest_magnitudes,
    shares,
)
from thinwire.settings import check_choice
from thinwire.types import ValueCodec

Format = Literal["e4m3", "e5m2"]
FORMATS: tuple[Format, ...] = get_args(Format)
_DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@dataclass(frozen=True, slots=True)
class Fp8Value(ValueCodec):
    """The eight-bit floats of Micikevicius et al. (2022), rounded to nearest.

    The largest magnitude of a chunk becomes the format's largest number, so that nothing
    overflows and as little as can be underflows: magnitudes keep 4 significant bits (e4m3) down
    to 2^-14 of the largest, or 3 (e5m2) down to 2^-29. |error| ≤ u·|x| + tiny·scale with u = 2^-4,
    tiny = 2^-10/448 (e4m3) or u = 2^-3, tiny = 2^-17/57344 (e5m2).

    float64 values beyond the range of float32 saturate. A chunk with NaN or Inf in it comes back
    as none but such.

    Part: see `chunks`, with the format (0 e4m3, 1 e5m2) and a zero byte; the body is a byte a
    value, never the code of a NaN or Inf.
    """

    id = 7
    name = "fp8"

    format: Format = "e4m3"
    chunk: int = 512

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)
        check_chunk("chunk", self.chunk)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The settings, the scales and the floats."""
        rows = in_chunks(values, self.chunk)
        scales = largest_magnitudes(rows)
        form = _DTYPES[self.format]
        fitted = shares(rows, scales).view(-1)[: values.numel()].mul_(torch.finfo(form).max)
        body = as_bytes(fitted.float().to(form))
        return join(FORMATS.index(self.format), 0, self.chunk, scales, body)

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """The floats, widened and scaled."""
        opened = take_apart(part, count)
        if opened.first >= len(FORMATS) or opened.second:
            raise WireFormatError(f"no such settings: format {opened.first}, {opened.second}")
        expect_bytes(opened.body, count, f"{count} values in fp8")
        floats = opened.body.view(_DTYPES[FORMATS[opened.first]]).to(dtype)
        if not bool(floats.isfinite().all() & ~(opened.scales < 0).any()):
            raise WireFormatError("codes must be finite and scales not negative")
        largest = torch.finfo(_DTYPES[FORMATS[opened.first]]).max
        # A tensor, since by a plain number CUDA divides with another rounding than the CPU.
        full = torch.full((), largest, dtype=dtype, device=part.device)
        return floats.div_(full).mul_(each_value(opened.scales, opened.chunk, count))

    def error_bound(self, values: Tensor) -> Tensor:
        """See the class; the scaling adds a few roundings of float32, whatever the dtype."""
        rows = in_chunks(values, self.chunk)
        scales = each_value(largest_magnitudes(rows).double(), rows.shape[1], values.numel())
        form = torch.finfo(_DTYPES[self.format])
        size = values.abs().double()
        step = form.smallest_normal * form.eps  # the format's least number
        excess = (size - LARGEST).clamp(min=0)
        least = torch.finfo(values.dtype).tiny * torch.finfo(values.dtype).eps
        return size * (form.eps / 2 + 2.0**-20) + scales / form.max * step * 0.51 + excess + least
