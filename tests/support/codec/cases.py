"""What every codec is tried on."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import pytest
import torch
from _pytest.mark import ParameterSet
from hypothesis import strategies as st
from torch import Tensor

from thinwire.codec import Pair
from thinwire.codec.value import (
    Centroid2Value,
    ChunkedValue,
    FitPolyValue,
    Fp8Value,
    QsgdValue,
    QuantileValue,
    ZstdValue,
)
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError
from thinwire.types import Communicator, ExchangeContext, IndexCodec, Selection, Sparse, ValueCodec

T = TypeVar("T")

LEFT_OUT: dict[str, str] = {}
"""Codecs whose package is not here, and the reason; a test shows them as skipped."""


def at_hand(made: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    found = {}
    for name, make in made.items():
        try:
            found[name] = make()
        except RecipeError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            LEFT_OUT[name] = str(error)
    return found


def each(names: Iterable[str]) -> list[ParameterSet]:
    """Names as parameters; those whose package is not here are skipped for that reason."""
    skips = {name: [pytest.mark.skip(reason=reason)] for name, reason in LEFT_OUT.items()}
    return [pytest.param(name, marks=skips.get(name, [])) for name in names]


VALUES: dict[str, ValueCodec] = at_hand(
    pieces("value")
    | {
        "qsgd-4-max": partial(QsgdValue, bits=4, bucket=16, norm="max"),
        "qsgd-2": partial(QsgdValue, bits=2, bucket=7),
        "qsgd-16-whole": partial(QsgdValue, bits=16, bucket=1 << 20),
        "fp8-e5m2": partial(Fp8Value, "e5m2", chunk=7),
        "zstd-19": partial(ZstdValue, level=19),
        "chunked-2": partial(ChunkedValue, bits=2, chunk=3),
        "chunked-2-stochastic": partial(ChunkedValue, bits=2, chunk=4096, rounding="stochastic"),
        "centroid2-7": partial(Centroid2Value, group=7),
        "quantile-2": partial(QuantileValue, bits=2),
        "quantile-9": partial(QuantileValue, bits=9),
        "fit_poly-1-3": partial(FitPolyValue, degree=1, pieces=3),
    }
)
"""Every registered value codec, and one with settings off its defaults where it has any."""

INDICES: dict[str, IndexCodec] = at_hand(
    {name: piece for name, piece in pieces("index").items() if piece.lossless}
)
PAIRS: dict[str, Pair] = {f"raw+{value}": Pair(value=piece) for value, piece in VALUES.items()} | {
    f"{index}+raw": Pair(index=piece) for index, piece in INDICES.items()
}
"""Every value codec and every lossless index codec, each with a raw other half."""

EXTREMES: dict[torch.dtype, list[float]] = {
    torch.float32: [0.0, -0.0, 1e-45, -1e-45, 1.17e-38, 65504.0, -65520.0, 3.4028235e38, -3.4e38],
    torch.float64: [0.0, -0.0, 5e-324, -2.2e-308, 1e-45, 65520.0, -1e39, 1.79e308, -1.79e308],
}


@dataclass
class Alone:
    """A rank with nobody to talk to: a codec that tried would fail."""

    rank: int = 0
    size: int = 1


def context(step: int = 0, rank: int = 0) -> ExchangeContext:
    return ExchangeContext("layer.weight", step, 7, cast(Communicator, Alone(rank)))


def random_values(count: int, dtype: torch.dtype, seed: int, extreme: bool = False) -> Tensor:
    """Normal values over a few orders of magnitude; with `extreme`, every third one is."""
    draw = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-4, 3, (count,), generator=draw).to(dtype)
    values = torch.randn(count, generator=draw, dtype=dtype) * scale
    if extreme:
        picks = torch.randint(len(EXTREMES[dtype]), (count,), generator=draw)
        values[::3] = torch.tensor(EXTREMES[dtype], dtype=dtype)[picks][::3]
    return values


def random_sparse(
    rows: int,
    count: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    width: int | None = None,
    ordered: bool = True,
    extreme: bool = False,
) -> Sparse:
    """`count` of `rows` elements, or of rows of `width` elements."""
    draw = torch.Generator().manual_seed(seed)
    indices = torch.randperm(rows, generator=draw)[:count]
    values = random_values(count * (1 if width is None else width), dtype, seed, extreme)
    if width is not None:
        values = values.view(count, width)
    return Sparse(
        indices.sort().values if ordered else indices,
        values,
        rows * (1 if width is None else width),
        ordered,
    )


@st.composite
def selections(draw: st.DrawFn) -> Selection:
    """Any selection: sizes from nothing to a few buckets, any density, dtype, form and order."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    seed = draw(st.integers(0, 2**32))
    extreme = draw(st.booleans())
    rows = draw(st.one_of(st.integers(0, 20), st.integers(21, 1500)))
    if draw(st.integers(0, 3)) == 0:
        return random_values(rows, dtype, seed, extreme)
    count = draw(st.one_of(st.sampled_from([0, rows]), st.integers(0, rows)))
    width = draw(st.sampled_from([None, None, 1, 2, 5]))
    return random_sparse(rows, count, dtype, seed, width, draw(st.booleans()), extreme)


def bits_of(x: Tensor) -> Tensor:
    """The bytes themselves: tells -0.0 from 0.0 and compares NaN."""
    return x.contiguous().view(torch.uint8)


def squared(x: Tensor) -> float:
    return math.fsum((x.double() ** 2).tolist())
