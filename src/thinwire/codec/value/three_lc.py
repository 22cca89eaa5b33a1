"""3LC: three values, five to a byte, and runs of zeros as one byte."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.codec.parts import as_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels._numeric import saturate
from thinwire.settings import check_range
from thinwire.types import ValueCodec

TRITS = 5
ZEROS = 121  # the byte of five zeros: 1 + 3 + 9 + 27 + 81
LONGEST = 14  # bytes of zeros that one byte stands for; 243 is two, 255 is fourteen
_PLACES = (81, 27, 9, 3, 1)
_RUNS = 3**TRITS


@dataclass(frozen=True, slots=True)
class ThreeLcValue(ValueCodec):
    """3LC (Lim, Andersen and Kaminsky, MLSys 2019), sections 3.1 to 3.3.

    With m = s·max|x|, a value becomes round(x/m)·m: -m, 0 or m (3.1). A larger `sparsity` s makes
    more of them zero. |error| ≤ m/2 for |x| ≤ m, which is all for s ≥ 1: biased, so it needs error
    feedback, as in the paper. Digits from 0 (-m) to 2 (m) are numbers to the base of 3, five to a
    byte (3.2); two to fourteen bytes of zeros in a row become one of the thirteen bytes that are
    left (3.3).

    Deviation: what is left over of the last five is zeros, not bytes of another kind.

    Part: m as float64, then the bytes.
    """

    id = 14
    name = "3lc"

    sparsity: float = 1.0

    def __post_init__(self) -> None:
        check_range("sparsity", self.sparsity, 1, 2, open_high=True)

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """The scale, and the bytes with runs of zeros made short."""
        scale = self._scale(values)
        shares = values.double() / torch.where(scale == 0, 1, scale)
        digits = shares.nan_to_num_(0).clamp_(-1, 1).round_().add_(1).to(torch.uint8)
        rows = pad(digits, (0, -digits.numel() % TRITS), value=1).view(-1, TRITS)
        places = torch.tensor(_PLACES, dtype=torch.uint8, device=values.device)
        packed = (rows * places).sum(1, dtype=torch.uint8)
        return torch.cat((as_bytes(scale.view(1)), _shorten(packed)))

    def decode(self, part: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """-m, 0 or m."""
        if part.numel() < 8:
            raise WireFormatError(f"a scale takes 8 bytes, found {part.numel()}")
        scale = part[:8].clone().view(torch.float64)
        if bool(scale < 0):
            raise WireFormatError(f"the scale must not be negative, found {scale.item()}")
        packed = _lengthen(part[8:], -(-count // TRITS))
        places = torch.tensor(_PLACES, device=part.device)
        table = torch.arange(3**TRITS, device=part.device)[:, None] // places % 3 - 1
        signs = table.to(dtype).index_select(0, packed.int()).view(-1)
        if bool(signs[count:].any()):
            raise WireFormatError(f"the spare digits after {count} values are not zero")
        return signs[:count] * scale.to(dtype)

    def error_bound(self, values: Tensor) -> Tensor:
        """Half a step, and what is left of a value that is more than a step and a half."""
        scale = self._scale(values)
        rounding = 4 * torch.finfo(values.dtype).eps * scale + torch.finfo(values.dtype).tiny
        return torch.maximum(scale / 2, values.abs().double() - scale) + rounding

    def _scale(self, values: Tensor) -> Tensor:
        if not values.numel():
            return values.new_zeros((), dtype=torch.float64)
        largest = torch.finfo(values.dtype).max
        return saturate(values.abs().amax().double() * self.sparsity, largest)


def _shorten(packed: Tensor) -> Tensor:
    """Bytes of zeros, by runs: as many fourteens as there are in it, and the rest as one byte."""
    zero = packed == ZEROS
    starts = torch.ones_like(zero)
    starts[1:] = ~(zero[1:] & zero[:-1])  # of each run of zeros, and of each other byte
    first = starts.nonzero().view(-1)
    lengths = first.diff(append=first.new_full((1,), packed.numel()))
    full, rest = lengths // LONGEST, lengths % LONGEST
    ends = torch.where(rest > 1, _RUNS - 2 + rest, packed[first].long())
    made = full + (rest > 0)
    out = torch.full((int(made.sum()),), 255, dtype=torch.uint8, device=packed.device)
    last = made.cumsum(0) - 1
    out[last[rest > 0]] = ends[rest > 0].to(torch.uint8)
    return out


def _lengthen(packed: Tensor, expected: int) -> Tensor:
    """The bytes with runs written out; no more than fourteen for each that there is."""
    lengths = torch.where(packed < _RUNS, 1, packed.long() - (_RUNS - 2))
    count = int(lengths.sum())
    if count != expected:
        raise WireFormatError(f"{expected} bytes of digits must be here, found {count}")
    plain = torch.where(packed < _RUNS, packed, ZEROS)
    out = plain.repeat_interleave(lengths, output_size=expected)
    if not torch.equal(_shorten(out), packed):
        raise WireFormatError("runs of zeros must be as short as they can be")
    return out
