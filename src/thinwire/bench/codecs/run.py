"""`thinwire bench codecs`: bits, speed and error of every codec, beside the entropy.

`entropy_bits` is what an ideal coder would take that sees one item at a time (see `entropy.py`).
`relative_error` is ‖decoded - given‖/‖given‖ for values, and for indices the share that is lost. Of
a Bloom filter the bits are the filter's; the values of false positives are not counted.

One thread; times are medians, the first run of each is not counted. Encoding is all that a sender
does: of a Bloom filter also the search for what receivers will find.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from thinwire.bench.codecs.data import SYNTHETIC, Sample, recorded, synthetic
from thinwire.bench.codecs.entropy import byte_entropy, index_entropy, shannon_bound
from thinwire.bench.sender import as_sent
from thinwire.bench.timing import Watcher, threads
from thinwire.cookbook.notation import build_pieces
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError, ThinwireError
from thinwire.results.file import ResultFile, Row
from thinwire.settings import check_density
from thinwire.types import IndexCodec, ValueCodec
from thinwire.workloads.tasks import TASKS

T = TypeVar("T")

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
    """The codecs, and why some are left out that were not asked for by name."""
    chosen: list[Entry] = []
    left_out: list[str] = []
    asked: dict[Part, tuple[str, ...]] = {"index": settings.index, "value": settings.value}
    for part, names in asked.items():
        for name in names or (*pieces(part), *VARIANTS[part]):
            try:
                pair = build_pieces({"codec": {part: name}})["codec"]
            except RecipeError as error:
                if names:
                    raise
                left_out.append(f"{name}: {error}")
                continue
            chosen.append(Entry(part, name, pair.index if part == "index" else pair.value))
    return chosen, left_out


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
    chosen, left_out = entries(settings)
    drawn = len(settings.synthetic) * len(settings.n)
    recordings = len(settings.models) * len(settings.steps)
    return chosen, left_out, (drawn + recordings) * len(settings.density) * len(chosen)


def run(settings: Settings, codecs: Sequence[Entry], results: ResultFile, watcher: Watcher) -> None:
    """Measure all, a row at a time."""
    with threads(1):
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
    (part, support), encode = _timed(lambda: as_sent(codec, indices, rows), seconds)
    count, lost = indices.numel() if support is None else support.numel(), 0.0
    decoded, decode = _timed(lambda: codec.decode(part, count, rows), seconds)
    if not codec.lossless:
        lost = 1 - float(torch.isin(indices, decoded).double().mean())
    return {
        **_rates(part, indices.numel(), encode, decode),
        "relative_error": lost,
        "entropy_bits": index_entropy(indices, rows),
    }


def _value(codec: ValueCodec, values: Tensor, seconds: float) -> Row:
    part, encode = _timed(lambda: codec.encode(values, 0), seconds)
    decoded, decode = _timed(lambda: codec.decode(part, values.numel(), values.dtype), seconds)
    error = (decoded.double() - values.double()).norm() / values.double().norm()
    return {
        **_rates(part, values.numel(), encode, decode),
        "relative_error": float(error),
        "entropy_bits": byte_entropy(values) if codec.lossless else shannon_bound(values, decoded),
    }


def _rates(part: Tensor, items: int, encode: float, decode: float) -> Row:
    return {
        "bits_per_item": 8 * part.numel() / items,
        "encode_items_per_s": items / encode,
        "decode_items_per_s": items / decode,
    }


def _timed(work: Callable[[], T], seconds: float) -> tuple[T, float]:
    """What it returns, and the median of a few runs of it after the first."""
    result = work()
    times: list[float] = []
    while len(times) < LEAST_RUNS or sum(times) < seconds:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return result, statistics.median(times)
