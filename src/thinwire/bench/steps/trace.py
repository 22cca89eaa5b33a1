"""One step in front of PyTorch's profiler, as a short list of spans: who was busy with what, when.

On a GPU a span is what a stream did; kernels are told apart by the range that launched them. On the
CPU it is what a thread did.
"""

import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from thinwire.frontends.torch_private import all_threads

Event = dict[str, Any]
Span = dict[str, Any]  # stream, what, start, end; seconds since the step began
EXCHANGE, OTHER = "exchange", "other"
GAP_US = 20.0  # spans of one kind with less between them are one: a picture shows no more
RANGES = ("thinwire::", "step::")  # the inner comes first
COLLECTIVES = ("nccl", "gloo:", "c10d::")
PHASES = {"feedback": "select", "agree": EXCHANGE}  # as the picture has them


def record(step: Callable[[], None], end: Callable[[], float], device: torch.device) -> list[Span]:
    """The second of two steps."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=1, active=1),
            experimental_config=all_threads(),  # ours too
            on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(path)),
        ) as profiler:
            for _ in range(2):
                step()
                end()
                profiler.step()
        return spans(json.loads(path.read_text())["traceEvents"])


def spans(events: Iterable[Event]) -> list[Span]:
    """Of a profile as Chrome reads it."""
    whole = [event for event in events if event.get("ph") == "X" and "dur" in event]
    ranges = [event for event in whole if _is_range(event)]
    if not ranges:
        return []
    launches = {
        event["args"]["correlation"]: event
        for event in whole
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    begin = min(event["ts"] for event in ranges)
    work = list(_kernels(whole, launches)) or list(_thread_work(whole))
    known = _Ranges(ranges)
    forward = {stream for stream, _, launch in work if known.step_at(launch) == "forward"}
    found = [
        _Work(stream, known.what(event, launch, stream in forward), event)
        for stream, event, launch in work
    ]
    return [span for span in _merged(found, begin) if span["end"] > 0]


@dataclass(frozen=True)
class _Work:
    stream: str
    what: str
    event: Event


class _Ranges:
    """Which range a launch was in: its thread's own, or else what all the step was at then."""

    def __init__(self, ranges: Iterable[Event]) -> None:
        ordered = sorted(ranges, key=lambda event: event["ts"])
        self._own: dict[object, list[Event]] = {}
        self._step = [event for event in ordered if event["name"].startswith("step::")]
        for event in ordered:
            if event["name"].startswith("thinwire::"):
                self._own.setdefault(event["tid"], []).append(event)

    def what(self, event: Event, launch: Event, of_the_model: bool) -> str:
        """The model's own streams are those that the forward pass uses."""
        if any(sign in event["name"].lower() for sign in COLLECTIVES):
            return EXCHANGE
        if phase := _innermost(self._own.get(launch["tid"], []), launch["ts"]):
            return PHASES.get(phase, phase)
        return self.step_at(launch) or OTHER if of_the_model else OTHER

    def step_at(self, launch: Event) -> str | None:
        return _innermost(self._step, launch["ts"])


def _innermost(ranges: list[Event], moment: float) -> str | None:
    """The last range to begin of those that contain the moment; they are in order."""
    last = bisect_right(ranges, moment, key=lambda event: event["ts"])
    for event in reversed(ranges[:last]):
        if moment <= event["ts"] + event["dur"]:
            name: str = event["name"].partition("::")[2]
            return name
    return None


def _is_range(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and event["name"].startswith(RANGES)


def _kernels(
    events: Iterable[Event], launches: dict[int, Event]
) -> Iterator[tuple[str, Event, Event]]:
    """What the device did: its stream, itself, and what launched it."""
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            arguments = event["args"]
            launch = launches.get(arguments.get("correlation"), event)
            yield f"stream {arguments['stream']}", event, launch


def _thread_work(events: Iterable[Event]) -> Iterator[tuple[str, Event, Event]]:
    """Without a device: the outermost operations of each thread."""
    ends: dict[object, float] = {}
    operations = [event for event in events if event.get("cat") == "cpu_op"]
    for event in sorted(operations, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= ends.get(event["tid"], 0.0):
            ends[event["tid"]] = event["ts"] + event["dur"]
            yield f"thread {event['tid']}", event, event


def _merged(work: Iterable[_Work], begin: float) -> list[Span]:
    """In the order of their starts, streams in the order of their first span."""
    last: dict[str, Span] = {}
    merged: list[Span] = []
    for one in sorted(work, key=lambda one: one.event["ts"]):
        start, end = one.event["ts"], one.event["ts"] + one.event["dur"]
        before = last.get(one.stream)
        if before and before["what"] == one.what and start - before["end"] < GAP_US:
            before["end"] = max(before["end"], end)
            continue
        last[one.stream] = {"stream": one.stream, "what": one.what, "start": start, "end": end}
        merged.append(last[one.stream])
    return [
        span | {edge: round((span[edge] - begin) / 1e6, 7) for edge in ("start", "end")}
        for span in merged
    ]
