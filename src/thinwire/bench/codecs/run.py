"""`thinwire bench codecs`: bits, speed and error of every codec, beside the entropy.

`entropy_bits` is what an ideal coder would take that sees one item at a time. For indices: the
entropy of the gaps' magnitudes (four to an octave, the bits below them as they are), or of a set of
so many indices of which nothing else is known, log2(n choose k)/k, if that is less. For values that
come back exactly: the entropy of each of their bytes; for others: Shannon's lower bound at the same
mean squared error, h(values) - log2(2πe·error)/2.

`relative_error` is ‖decoded - given‖/‖given‖ for values, and for indices the share that is lost. Of
a Bloom filter the bits are the filter's; the values of false positives are not counted.

One thread; times are medians, the first run of each is not counted.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from thinwire.bench.codecs.data import SYNTHETIC, Sample, recorded, synthetic
from thinwire.bench.timing import Watcher
from thinwire.cookbook.notation import build_pieces
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError, ThinwireError
from thinwire.kernels import huffman
from thinwire.kernels.huffman.code import WIDTHS
from thinwire.results.file import ResultFile, Row
from thinwire.settings import check_density
from thinwire.types import IndexCodec, ValueCodec
from thinwire.workloads.tasks import TASKS

Part = Literal["index", "value"]
VARIANTS: dict[Part, tuple[str, ...]] = {
    "index": ("bloom('p1')", "bloom('p2')", "bloom('leftmost')", "bloom('naive')"),
    "value": ("fp8('e5m2')", "qsgd(7)", "chunked(2)"),
}
LEAST_RUNS = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. No codecs means all there are, and some with other settings."""

    index: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    synthetic: tuple[str, ...] = SYNTHETIC
    models: tuple[str, ...] = ("text", "digits")
    steps: tuple[int, ...] = (1, 30)
    n: tuple[int, ...] = (4_000_000,)
    density: tuple[float, ...] = (0.01,)
    seconds: float = 0.05  # of each measurement
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A codec under the name it was given."""

    part: Part
    name: str
    codec: Any


def entries(settings: Settings) -> tuple[list[Entry], list[str]]:
    """The codecs, and why some that nobody asked for by name are left out."""
    found: list[Entry] = []
    left_out: list[str] = []
    tables: dict[Part, Sequence[str]] = {"index": [*pieces("index")], "value": [*pieces("value")]}
    for part, table in tables.items():
        asked: tuple[str, ...] = getattr(settings, part)
        for name in asked or (*table, *VARIANTS[part]):
            try:
                pair = build_pieces({"codec": {part: name}})["codec"]
            except RecipeError as error:
                if asked:
                    raise
                left_out.append(f"{name}: {error}")
                continue
            found.append(Entry(part, name, getattr(pair, part)))
    return found, left_out


def plan(settings: Settings) -> tuple[list[Entry], list[str], int]:
    """As `entries`, and how many rows there will be; refuses what cannot be measured."""
    for what, names, known in (
        ("distribution", settings.synthetic, SYNTHETIC),
        ("model", settings.models, TASKS),
    ):
        for name in names:
            if name not in known:
                raise ThinwireError(f"unknown {what} {name!r}; there are {', '.join(known)}")
    for density in settings.density:
        check_density(density)
    found, left_out = entries(settings)
    drawn = len(settings.synthetic) * len(settings.n)
    samples = drawn + len(settings.models) * len(settings.steps)
    return found, left_out, samples * len(settings.density) * len(found)


def run(settings: Settings, codecs: Sequence[Entry], results: ResultFile, watcher: Watcher) -> None:
    """Measure all, a row at a time."""
    with _one_thread():
        for sample in samples(settings):
            for entry in codecs:
                watcher.start(f"{sample.distribution}: {entry.name}")
                results.add([measure(entry, sample, settings.seconds)])
                watcher.advance()


def samples(settings: Settings) -> Iterator[Sample]:
    """What to encode; training goes on only as far as is asked for."""
    for kind in settings.synthetic:
        for n in settings.n:
            for density in settings.density:
                yield synthetic(kind, n, density, settings.seed)
    for model in settings.models:
        yield from recorded(model, settings.steps, settings.density, settings.seed)


def measure(entry: Entry, sample: Sample, seconds: float) -> Row:
    """One row."""
    s = sample.selection
    if entry.part == "index":
        measured = _index(entry.codec, s.indices, s.rows, seconds)
    else:
        measured = _value(entry.codec, s.values, seconds)
    bits = measured["bits_per_item"]
    return {
        "part": entry.part,
        "codec": entry.name,
        "distribution": sample.distribution,
        "n": s.numel,
        "density": sample.density,
        "count": s.count,
        **measured,
        "distance_bits": bits - measured["entropy_bits"],
    }


def _index(codec: IndexCodec, indices: Tensor, rows: int, seconds: float) -> Row:
    part, encode = _timed(lambda: codec.encode(indices, rows, True), seconds)
    count, lost = indices.numel(), 0.0
    if not codec.lossless:
        support = codec.support(part, count, rows)
        count = count if support is None else support.numel()
    found, decode = _timed(lambda: codec.decode(part, count, rows), seconds)
    if not codec.lossless:
        lost = 1 - float(torch.isin(indices, found).double().mean())
    return {
        **_rates(part, indices.numel(), encode, decode),
        "relative_error": lost,
        "entropy_bits": index_entropy(indices, rows),
    }


def _value(codec: ValueCodec, values: Tensor, seconds: float) -> Row:
    part, encode = _timed(lambda: codec.encode(values, 0), seconds)
    found, decode = _timed(lambda: codec.decode(part, values.numel(), values.dtype), seconds)
    error = (found.double() - values.double()).norm() / values.double().norm()
    return {
        **_rates(part, values.numel(), encode, decode),
        "relative_error": float(error),
        "entropy_bits": byte_entropy(values) if codec.lossless else shannon_bound(values, found),
    }


def _rates(part: Tensor, items: int, encode: float, decode: float) -> Row:
    return {
        "bits_per_item": 8 * part.numel() / items,
        "encode_items_per_s": items / encode,
        "decode_items_per_s": items / decode,
    }


def _timed(work: Callable[[], Tensor], seconds: float) -> tuple[Tensor, float]:
    """What it returns, and the median of a few runs of it after the first."""
    result = work()
    times: list[float] = []
    while len(times) < LEAST_RUNS or sum(times) < seconds:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return result, statistics.median(times)


def index_entropy(indices: Tensor, rows: int) -> float:
    """Bits an index, see the module."""
    count = indices.numel()
    gaps = indices.diff(prepend=indices.new_full((1,), -1)) - 1
    frequencies = huffman.histogram(gaps)
    below = float((frequencies * torch.from_numpy(WIDTHS)).sum()) / count
    choices = math.lgamma(rows + 1) - math.lgamma(count + 1) - math.lgamma(rows - count + 1)
    return min(_entropy(frequencies) + below, choices / math.log(2) / count)


def byte_entropy(values: Tensor) -> float:
    """Bits a value, of each of its bytes alone."""
    rows = values.contiguous().view(torch.uint8).view(values.numel(), -1)
    return sum(_entropy(torch.bincount(column.long())) for column in rows.unbind(1))


def shannon_bound(values: Tensor, found: Tensor) -> float:
    """The fewest bits a value for an error such as `found` has, if values are independent.

    Their differential entropy is Vasicek's estimate (1976), from the spacings of √n neighbours.
    """
    x, n = values.double().sort().values, values.numel()
    error = float((found.double() - values.double()).square().mean())
    if not error or not math.isfinite(error):
        return 0.0
    width = max(1, math.isqrt(n))
    place = torch.arange(n)
    spacings = x[(place + width).clamp(max=n - 1)] - x[(place - width).clamp(min=0)]
    least = torch.finfo(torch.float32).tiny  # equal values, if there are any
    entropy = float((spacings * n / (2 * width)).clamp(min=least).log2().mean())
    return max(0.0, entropy - math.log2(2 * math.pi * math.e * error) / 2)


def _entropy(frequencies: Tensor) -> float:
    shares = frequencies[frequencies > 0].double() / int(frequencies.sum())
    return max(0.0, -float((shares * shares.log2()).sum()))


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
