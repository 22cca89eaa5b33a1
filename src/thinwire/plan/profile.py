"""A finished profile of `torch.profiler`, as Chrome reads it: what a step took, and what of it hid.

Exchange is what collectives of Gloo and NCCL span; compute is all else that ran, kernels where
there are any and operations of the CPU where not. What of the exchange had no compute beside it was
waited for. The size of the model and the speed of the network are those of the exchanges.
"""

import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import torch

from thinwire.errors import ThinwireError
from thinwire.files import from_json
from thinwire.plan.models import Model
from thinwire.plan.observe import Observed

Event = dict[str, Any]
Span = tuple[float, float]  # microseconds
COLLECTIVES = ("nccl", "gloo:", "c10d::")
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
STEPS = ("ProfilerStep#", "Optimizer.step#")  # what a step is told by, the better first


@dataclass(frozen=True, slots=True)
class Profile:
    """What was seen; `gbps` is what the exchanges come to, if they were ring allreduces."""

    seen: Observed
    gbps: float


def read_profile(path: Path, model: Model | None) -> Profile:
    """Of one rank's trace, also gzipped; a `model` has the shapes that a trace does not know."""
    trace = _load(path)
    events = [event for event in trace["traceEvents"] if _is_span(event)]
    begin, end, step = _steps(events, path)
    inside = [event for event in events if begin <= event["ts"] < end]
    exchanges = list(_of_kind(inside, True))
    if not exchanges:
        raise ThinwireError(
            f"{path}: no collective of Gloo or NCCL in its steps; profile a rank of a DDP script"
        )
    count = (end - begin) / step
    busy, compute = _union(map(_span, exchanges)), _union(map(_span, _of_kind(inside, False)))
    exchange, waited = (_length(spans) / count / 1e6 for spans in (busy, _without(busy, compute)))
    ranks = trace.get("distributedInfo")
    workers = ranks.get("world_size") if isinstance(ranks, dict) else None
    if not isinstance(workers, int) or workers < 2:
        raise ThinwireError(f"{path}: it does not say of how many ranks; torch 2.10 and later do")
    sizes = _sizes(exchanges, round(count))
    found = model or _of_buckets(path, sizes)
    found = replace(found, compute=max(0.0, step / 1e6 - waited))
    device = torch.device("cuda" if _on_gpu(inside) else "cpu")
    moved = 2 * (workers - 1) / workers * 4 * found.numel
    seen = Observed(found, step / 1e6, workers, device, exchange)
    return Profile(seen, 8e-9 * moved / exchange)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        trace = from_json(text)
        iter(trace["traceEvents"])
    except (gzip.BadGzipFile, zlib.error, ValueError, EOFError, KeyError, TypeError) as error:
        raise ThinwireError(
            f"{path} is no trace of torch.profiler (export_chrome_trace writes one): {error}"
        ) from error
    return dict(trace)


def _is_span(event: Any) -> bool:
    """Whether it says what went on from when to when; others may have written the trace."""
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and isinstance(event.get("name"), str)
        and isinstance(event.get("args", {}), dict)
        and all(isinstance(event.get(at), int | float) for at in ("ts", "dur"))
        and isfinite(event["ts"] + event["dur"])
    )


def _steps(events: Sequence[Event], path: Path) -> tuple[float, float, float]:
    """From the first step's begin to the last one's, and a step between: microseconds."""
    for sign in STEPS:
        starts = sorted(event["ts"] for event in events if event["name"].startswith(sign))
        starts = starts[1:] if len(starts) > 3 else starts  # the profiler warms up in the first
        if len(starts) > 1:
            gaps = [late - early for early, late in pairwise(starts)]
            return starts[0], starts[-1], median(gaps)
    raise ThinwireError(f"{path}: fewer than two steps in it; profile five or more")


def _on_gpu(events: Iterable[Event]) -> bool:
    return any(event.get("cat") in KERNELS for event in events)


def _of_kind(events: Sequence[Event], exchange: bool) -> Iterable[Event]:
    """Exchanges, or compute: of a GPU its kernels; of a CPU what Gloo's threads and others did."""
    on_cpu = "user_annotation" if exchange else "cpu_op"
    kinds = KERNELS if _on_gpu(events) else (on_cpu,)
    for event in events:
        collective = any(sign in event["name"].lower() for sign in COLLECTIVES)
        if event.get("cat") in kinds and collective == exchange:
            yield event


def _sizes(exchanges: Iterable[Event], steps: int) -> list[int]:
    """Elements of each allreduce of a step, where the trace has shapes."""
    found = [
        _elements(event.get("args", {}))
        for event in sorted(exchanges, key=lambda event: event["ts"])
        if "allreduce" in event["name"].lower().replace("_", "")
    ]
    return [size for size in found if size][: max(1, len(found) // max(1, steps))]


def _elements(about: dict[str, Any]) -> int:
    """Of one exchange; 0 where the trace does not say."""
    match about:
        case {"Input Dims": [*shapes]}:
            flat = [shape[0] for shape in shapes if isinstance(shape, list) and len(shape) == 1]
            if flat and all(isinstance(size, int) for size in flat):
                return sum(flat)
    match about:
        case {"In msg nelems": int(count)}:
            return count
    return 0


def _of_buckets(path: Path, sizes: Sequence[int]) -> Model:
    if not sizes:
        raise ThinwireError(
            f"{path} has no shapes: name your model too, as module:function, or profile with "
            "record_shapes=True"
        )
    return Model(path.name, {f"bucket {place}": (size,) for place, size in enumerate(sizes)})


def _span(event: Event) -> Span:
    return event["ts"], event["ts"] + event["dur"]


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of `spans` no other covers; both are unions, and so in order."""
    left: list[Span] = []
    place = 0
    for begin, end in spans:
        while place < len(others) and others[place][0] < end:
            first, last = others[place]
            if last > begin and first > begin:
                left.append((begin, first))
            begin = max(begin, last)
            if last > end:
                break  # it may cover some of the next span too
            place += 1
        if begin < end:
            left.append((begin, end))
    return left


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
