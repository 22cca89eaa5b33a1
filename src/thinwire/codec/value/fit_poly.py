"""A curve as pieces of polynomials."""

import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.parts import as_bytes, expect_bytes
from thinwire.codec.value.fitted import FittedValue
from thinwire.errors import WireFormatError
from thinwire.kernels.poly_fit import evaluate, project, split
from thinwire.settings import check_integer

_SHAPE = struct.Struct("<BBH")  # degree, pieces, zero
_MOST_DEGREE = 15
_MOST_PIECES = 255


@dataclass(frozen=True, slots=True)
class FitPolyValue(FittedValue):
    """Fit-Poly of DeepReduce (section 5): polynomials of degree 5, by least squares.

    The sorted values of either sign are cut where they are farthest from the chord, into at most
    `pieces`, none with fewer points than a polynomial has coefficients. None is the paper's rule
    (after lemma 1): ⌈2√M⌉ pieces, where M is by how much the gap between the two largest values
    differs from that between the two smallest. Gradients are far below 1, and so is M: that is one
    piece or two, and more once all values are multiplied by a number. The eight of its figure 5 are
    the default: they fit far better.

    Deviations: the paper does not say which piece is cut next; here the one that is farthest from
    its chord. And the polynomials are those that are orthogonal on the points (`kernels.poly_fit`):
    powers of x need normal equations that float32 cannot hold.

    Formula: degree (u8), pieces (u8), two zero bytes; the length of each piece (u32); the float32
    coefficients, piece by piece.
    """

    id = 12
    name = "fit_poly"

    degree: int = 5
    pieces: int | None = 8

    def __post_init__(self) -> None:
        check_integer("degree", self.degree, 0, _MOST_DEGREE)
        if self.pieces is not None:
            check_integer("pieces", self.pieces, 1, _MOST_PIECES)

    def measure(self, curve: Tensor, scale: float) -> Tensor:
        """The length of each piece and its coefficients; without length where there is none."""
        pieces = papers_pieces(curve, scale) if self.pieces is None else self.pieces
        lengths = split(curve, pieces, self.degree + 1)
        coefficients = project(curve, lengths, self.degree)
        return torch.cat((lengths.double(), coefficients.view(-1)))

    def write(self, measured: Tensor, count: int) -> Tensor:
        """The shape, the lengths and the coefficients."""
        lengths = measured[: measured.numel() // (self.degree + 2)]
        coefficients = measured[lengths.numel() :].view(-1, self.degree + 1)[lengths > 0]
        lengths = lengths[lengths > 0]
        shape = bytearray(_SHAPE.pack(self.degree, lengths.numel(), 0))
        head = torch.frombuffer(shape, dtype=torch.uint8)
        return torch.cat((head, as_bytes(lengths.int()), as_bytes(coefficients.float().view(-1))))

    def draw(self, formula: Tensor, count: int, device: torch.device) -> Tensor:
        """The polynomials."""
        if formula.numel() < _SHAPE.size:
            raise WireFormatError(f"a shape takes {_SHAPE.size} bytes, found {formula.numel()}")
        degree, pieces, zero = _SHAPE.unpack(bytes(formula[: _SHAPE.size].tolist()))
        if degree > _MOST_DEGREE or not pieces or zero:
            raise WireFormatError(f"no such shape: degree {degree}, {pieces} pieces, {zero}")
        middle = _SHAPE.size + 4 * pieces
        what = f"{pieces} pieces of degree {degree}"
        expect_bytes(formula, middle + 4 * pieces * (degree + 1), what)
        # Cloned, since the bytes need not lie at a multiple of four.
        lengths = formula[_SHAPE.size : middle].clone().view(torch.int32).long()
        if bool((lengths < 1).any()) or int(lengths.sum()) != count:
            raise WireFormatError(f"pieces must have {count} points, found {lengths.tolist()}")
        coefficients = formula[middle:].clone().view(torch.float32).double()
        rows = coefficients.view(pieces, degree + 1)
        return evaluate(rows.to(device), lengths.to(device), count)


def papers_pieces(curve: Tensor, scale: float) -> int:
    """⌈2√M⌉ for the ascending `curve` times `scale`, at least one."""
    if curve.numel() < 2 or not math.isfinite(scale):
        return 1
    bend = scale * abs(float((curve[-1] - curve[-2]) - (curve[1] - curve[0])))
    return max(1, min(_MOST_PIECES, math.ceil(2 * math.sqrt(bend))))
