"""A curve as the sum of two exponentials."""

import math
import struct
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thinwire.codec.parts import expect_bytes
from thinwire.codec.value.fitted import FittedValue
from thinwire.errors import WireFormatError

_FORMULA = struct.Struct("<dddd")  # a, r, c, s
_EVEN, _NEAR_TOP = 32, 48  # blocks of equal length; and ends of others, half as far from the top
_STEEPEST_RISE = 40.0
_RATES, _ROUNDS, _FINER = 32, 6, 9
_LOW = 1024

Floats = NDArray[np.float64]
Pair = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class FitDexpValue(FittedValue):
    """Fit-DExp of DeepReduce (section 5): y = a·e^{bx} + c·e^{dx}, four numbers for each sign.

    x counts points from the largest value down, and what is sent are the ratios r = e^b and
    s = e^d between one point and the next: the decoder multiplies, and draws the same bits on every
    machine, where an exponential's last bit is each library's own.

    Deviation: the paper does not say how it fits. Here the curve is reduced to the sums of some 80
    blocks, which an exponential's are known of in closed form; for given b and d the best a and c
    then are two linear equations, and the best of a grid of pairs is refined six times. It always
    ends, and its cost does not depend on the number of values. The sums are taken where the values
    are, and the pair is sought on the host.

    Formula: a, r, c, s as float64.
    """

    id = 13
    name = "fit_dexp"

    def measure(self, curve: Tensor, scale: float) -> Tensor:
        """The sums of the blocks."""
        edges, falling = _edges(curve.numel()), curve.flip(0)
        if curve.device.type == "cpu":
            return torch.from_numpy(np.add.reduceat(falling.numpy(), edges[:-1]))
        return torch.stack([block.sum() for block in falling.split(np.diff(edges).tolist())])

    def write(self, measured: Tensor, count: int) -> Tensor:
        """The four numbers."""
        a, b, c, d = _best_pair(measured.numpy(), count)
        span = max(1, count - 1)
        formula = _FORMULA.pack(a, math.exp(-b / span), c, math.exp(-d / span))
        return torch.frombuffer(bytearray(formula), dtype=torch.uint8)

    def draw(self, formula: Tensor, count: int, device: torch.device) -> Tensor:
        """The exponentials."""
        expect_bytes(formula, _FORMULA.size, "two exponentials")
        a, r, c, s = _FORMULA.unpack(bytes(formula.tolist()))
        if not (0 < r < math.inf and 0 < s < math.inf and math.isfinite(a) and math.isfinite(c)):
            raise WireFormatError(f"ratios must be positive and all finite, found {a, r, c, s}")
        rows = -(-count // _LOW)
        curve = torch.zeros((rows, _LOW), dtype=torch.float64, device=device)
        for height, ratio in ((a, r), (c, s)):
            low = _powers(ratio, _LOW)
            high = height * _powers(float(low[-1]) * ratio, rows)
            columns = torch.from_numpy(low).to(device)
            curve += torch.from_numpy(high).to(device)[:, None] * columns
        return curve.view(-1)[:count].flip(0)


def _powers(ratio: float, count: int) -> Floats:
    """1, ratio, ratio², …, by products alone; too large ones become Inf."""
    factors = np.full(count, ratio)
    factors[:1] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        powers: Floats = np.multiply.accumulate(factors)
    return powers


def _best_pair(totals: Floats, count: int) -> Pair:
    """Heights and rates of Σ height·e^{-rate·x} for a curve over x = 0 … 1, which falls."""
    edges = _edges(count)
    up = np.geomspace(0.1, count + 1.0, _RATES)
    down = np.geomspace(0.1, _STEEPEST_RISE, _RATES)
    rates = np.concatenate((-down, np.zeros(1), up))
    gain, pair = _best_of(rates, rates, totals, edges)
    factors = np.linspace(-1, 1, _FINER)
    width = float(up[1] / up[0])
    for _ in range(_ROUNDS):
        _, b, _, d = pair
        near = [rate * width**factors if rate else 0.1 * factors for rate in (b, d)]
        better, candidate = _best_of(near[0], near[1], totals, edges)
        if better > gain:
            gain, pair = better, candidate
        width **= 0.6
    return pair


def _edges(count: int) -> NDArray[np.int64]:
    """Where blocks begin and end: finer and finer towards the largest values, at 0."""
    even = np.arange(_EVEN + 1) * count // _EVEN
    near_top = (count * 2.0 ** (-0.5 * np.arange(_NEAR_TOP))).astype(np.int64)
    return np.unique(np.concatenate((even, near_top)))


def _best_of(
    first: Floats, second: Floats, totals: Floats, edges: NDArray[np.int64]
) -> tuple[float, Pair]:
    """The best pair of one of the `first` and one of the `second` rates, and what it explains.

    Least squares over blocks, each weighted by the inverse of its length as the sum's variance is.
    Sums by einsum, which adds in a fixed order, where a matrix product asks how many threads.
    """
    weights = 1 / np.sqrt(np.diff(edges))
    y = totals * weights
    p, q = _sums(first, edges) * weights, _sums(second, edges) * weights
    pp, qq = np.einsum("ik,ik->i", p, p)[:, None], np.einsum("ik,ik->i", q, q)
    py, qy = np.einsum("ik,k->i", p, y)[:, None], np.einsum("ik,k->i", q, y)
    pq = np.einsum("ik,jk->ij", p, q)
    determinant = pp * qq - pq * pq
    apart = determinant > 1e-9 * pp * qq
    safe = np.where(apart, determinant, 1)
    # Where two rates are as good as one, the first alone.
    a = np.where(apart, (py * qq - qy * pq) / safe, py / pp)
    c = np.where(apart, (qy * pp - py * pq) / safe, 0)
    explained = a * py + c * qy
    i, j = divmod(int(explained.argmax()), second.size)
    pair = (float(a[i, j]), float(first[i]), float(c[i, j]), float(second[j]))
    return float(explained[i, j]), pair


def _sums(rates: Floats, edges: NDArray[np.int64]) -> Floats:
    """For each rate, the sum of e^{-rate·x} over each block: a geometric series."""
    step = (-rates / max(1, int(edges[-1]) - 1))[:, None]
    lengths = np.diff(edges).astype(np.float64)
    ratio = np.expm1(step)
    series = np.expm1(step * lengths) / np.where(ratio == 0, 1, ratio)
    sums: Floats = np.exp(step * edges[:-1]) * np.where(ratio == 0, lengths, series)
    return sums
