"""DRAGONN's kernels on one core: encoding and decoding (figure 5)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from thinwire.bench.kernels import run as kernels
from thinwire.bench.kernels.ops import Inputs
from thinwire.bench.kernels.timing import measure
from thinwire.bench.timing import threads
from thinwire.errors import ThinwireError
from thinwire.kernels.batched_decode import decode_sum
from thinwire.report.papers import IN_PART, NO, YES
from thinwire.reproduce.experiment import Curve, Finding, Panel, verdict
from thinwire.reproduce.measures import Inner, Measures
from thinwire.results.file import ResultFile, Row
from thinwire.types import Sparse

ENCODE = {"encode topk": "topk", "encode dgc": "DGC", "encode dragonn": "DRAGONN"}
BY_SIZE, BY_DENSITY = "time to encode", "time to encode 4 M elements"
DECODE = "time to decode"
CPU = torch.device("cpu")


def _encode(measures: Measures, sizes: list[int], densities: list[float]) -> list[Row]:
    """Whole recipes: residual, momentum, selection and payload; a process's own time."""
    results = ResultFile(None)
    settings = kernels.Settings(
        n=tuple(measures.scale(sizes, [1 << 14])),
        density=tuple(measures.scale(densities, [0.01])),
        ops=tuple(ENCODE),
        seconds=measures.scale(0.4, 0.01),
    )
    failures = kernels.run(settings, results, Inner(measures.watcher))
    if failures:
        raise ThinwireError("\n".join(failures))
    return results.rows


def measure_encoding(measures: Measures) -> list[Panel]:
    """Figure 5 (a)."""
    sizes, densities = [1 << 16, 1 << 18, 1 << 20, 1 << 22], [0.0001, 0.001, 0.01]
    rows = _encode(measures, sizes, [0.001])
    swept = _encode(measures, sizes[-1:], densities)
    by_size = [
        Curve(name, [r["n"] for r in rows if r["op"] == op], _seconds(rows, op))
        for op, name in ENCODE.items()
    ]
    by_density = [
        Curve(name, [r["density"] for r in swept if r["op"] == op], _seconds(swept, op))
        for op, name in ENCODE.items()
    ]
    panels = [
        Panel(BY_SIZE, "elements", "s", by_size),
        Panel(BY_DENSITY, "density", "s", by_density),
    ]
    return [*panels, _decoding(measures)]


def _seconds(rows: list[Row], op: str) -> list[float]:
    """Of all steps: those in which DGC has too many or too few are part of what it costs."""
    return [row["seconds"] for row in rows if row["op"] == op]


def _decoding(measures: Measures) -> Panel:
    """Figure 5 (b): k per worker stays the same, 0.001 of the tensor."""
    inputs = Inputs(measures.scale(1 << 22, 1 << 14), 0.001, CPU)
    counts, out = measures.scale([2, 4, 8, 16], [2]), torch.empty(inputs.n)
    times: dict[str, list[float]] = {"dense decoding": [], "sparse decoding": []}
    with threads(1):
        for count in counts:
            parts = [inputs.part(worker, inputs.k) for worker in range(count)]

            ways: dict[str, Callable[[], object]] = {
                "dense decoding": partial(_add_dense, parts, out),
                "sparse decoding": partial(decode_sum, parts, out, 1 / count),
            }
            for name, work in ways.items():
                times[name].append(measure(work, CPU, measures.scale(0.4, 0.01))[1].low)
    curves = [Curve(name, counts, each) for name, each in times.items()]
    return Panel(DECODE, "workers", "s", curves)


def _add_dense(parts: list[Sparse], out: Tensor) -> None:
    """Each payload to a dense tensor of its own."""
    out.zero_()
    for part in parts:
        out.add_(part.to_dense())


def judge_encoding(panels: dict[str, Panel]) -> list[Finding]:
    size, density, decode = panels[BY_SIZE], panels[BY_DENSITY], panels[DECODE]
    saved = [
        1 - (a or 0) / (b or 1)
        for a, b in zip(size.curve("DRAGONN").y, size.curve("DGC").y, strict=True)
    ]
    spread = [value for value in density.curve("DRAGONN").y if value]
    dense, sparse = (decode.curve(f"{kind} decoding") for kind in ("dense", "sparse"))
    grown = sparse.last / (sparse.y[0] or 1)
    dense_grown = dense.last / (dense.y[0] or 1)
    most = dense.x[-1]
    return [
        Finding(
            "hashing takes up to 70 % less time to encode than DGC",
            "13.2 against 35.4 ms for 512 MB on a V100",
            f"{min(saved):.0%} to {max(saved):.0%} less, whole recipes on one core; of "
            f"{size.curve('DGC').x[-1]:,} elements {1000 * size.curve('DRAGONN').last:.2f} against "
            f"{1000 * size.curve('DGC').last:.2f} ms",
            YES if max(saved) > 0.6 else IN_PART if max(saved) > 0.05 else NO,
        ),
        Finding(
            "the time to encode is about constant for densities of 0.0001 to 0.01",
            "almost constant",
            f"{max(spread) / min(spread):.2f} times from the lowest to the highest",
            verdict([max(spread) / min(spread) < 1.3]),
        ),
        Finding(
            "dense decoding grows in line with the workers, sparse decoding is constant",
            f"over {most} times as fast with {most} workers",
            f"from {dense.x[0]} to {most} workers dense takes {dense_grown:.1f} times as long, "
            f"sparse {grown:.2f} times; sparse is {dense.last / sparse.last:.1f} times as fast",
            verdict([dense_grown > 4, grown < 1.5, dense.last / sparse.last > 4]),
        ),
    ]
