"""What a rank does for `thinwire bench sync`: one way to average, over a few steps, timed."""

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import thinwire as tw
from thinwire.bench.peers import PEERS, Method, as_layers
from thinwire.bench.sockets import bytes_written
from thinwire.collective import LowRank
from thinwire.cookbook import at_density
from thinwire.lab.rank_main import Case, Message, ReportStep, own_link_bytes
from thinwire.pipeline import Pipeline
from thinwire.workloads.gradients import SyntheticGradient

_gradients: dict[tuple[object, ...], SyntheticGradient] = {}  # the last: making it takes a while


def measure(case: Case, rank: int, report_step: ReportStep) -> Message:
    """Seconds, seconds by phase and bytes, of every step after the warm-up."""
    gradient = _gradient(case["n"], rank, case["seed"], torch.device(case["device"]))
    method = _method(case["recipe"], case["density"], case["seed"])
    try:
        for _ in range(case["warmup"]):
            _timed(method, gradient.fill())
            report_step()
        while isinstance(method, Recipe) and not method.sync.choosers.settled:
            _timed(method, gradient.fill())  # `auto` still tries
        dist.barrier()
        link = own_link_bytes()
        steps = []
        for _ in range(case["steps"]):
            steps.append(_timed(method, gradient.fill()))
            report_step()
        dist.barrier()
        link_bytes = None if link is None else (own_link_bytes() or 0) - link
        told = _told(method, case["steps"])
        return {"steps": steps, "link_bytes": link_bytes, "series": told, **_selected(method)}
    finally:
        if isinstance(method, Recipe):
            method.sync.close()


class Recipe:
    """A recipe of ours, measured as the peers are: low rank of matrices, and from the start."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self._has_rank = isinstance(pipeline.collective, LowRank)
        if isinstance(pipeline.collective, LowRank):
            pipeline = replace(pipeline, collective=replace(pipeline.collective, start=0))
        self.sync = tw.Synchronizer(pipeline, seed=seed)

    @property
    def seconds(self) -> dict[str, float]:
        total = self.sync.stats()["total"]
        return dict(Counter(total["seconds"]) + Counter(total["first_steps"]["seconds"]))

    def step(self, grad: Tensor) -> None:
        if self._has_rank:
            self.sync.average_all({f"layer.{place}": g for place, g in enumerate(as_layers(grad))})
        else:
            self.sync.average("gradient", grad)


def _method(name: str, density: float | None, seed: int) -> Method:
    if name in PEERS:
        return PEERS[name](density or 0.0)
    return Recipe(at_density(name, density), seed)


def _timed(method: Method, grad: Tensor) -> dict[str, Any]:
    """One step, which all ranks begin together."""
    before = dict(method.seconds)
    dist.barrier()
    _wait_for(grad)
    written, started = bytes_written(), time.perf_counter()
    method.step(grad)
    _wait_for(grad)
    took = time.perf_counter() - started
    written_after = bytes_written()
    phases = {phase: s - before.get(phase, 0.0) for phase, s in method.seconds.items()}
    socket_bytes = None if written is None else (written_after or 0) - written
    return {"seconds": took, "phases": phases, "socket_bytes": socket_bytes}


def _wait_for(grad: Tensor) -> None:
    """Until its device is done."""
    if grad.is_cuda:
        torch.cuda.synchronize(grad.device)


def _told(method: Method, steps: int) -> dict[str, list[float]]:
    """What the pieces told of the measured steps: thresholds, counts and the like."""
    if not isinstance(method, Recipe):
        return {}
    series = method.sync.stats().get("series", {}).get("gradient", {})
    return {what: one["values"][-steps:] for what, one in series.items()}


def _selected(method: Method) -> Message:
    """The mean number of elements sent and the bytes, as the library counts them; what it chose."""
    if not isinstance(method, Recipe):
        return {"k": None, "counted_bytes": None, "decision": None}
    total = method.sync.stats()["total"]
    return {
        "k": total["k"],
        "counted_bytes": total["bytes_sent"] / max(1, total["steps"]),
        "decision": method.sync.choosers.decided(),
    }


def _gradient(n: int, rank: int, seed: int, device: torch.device) -> SyntheticGradient:
    if (n, seed, device) not in _gradients:
        _gradients.clear()
        _gradients[n, seed, device] = SyntheticGradient(n, rank, seed, device)
    return _gradients[n, seed, device]
