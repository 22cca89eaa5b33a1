"""What a rank does for `thinwire bench train`: train with DDP, step by step, timed."""

import gc
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.bench.sockets import bytes_written
from thinwire.bench.train.hooks import HeldBack, compress
from thinwire.frontends import Handle
from thinwire.lab.rank_main import Case, Message, ReportStep, own_link_bytes
from thinwire.lab.ranks import ignore_step
from thinwire.workloads.shape_model import Pace, ShapeModel, plain
from thinwire.workloads.tasks import TASKS

REHEARSAL = {"weight": [64, 64], "bias": [64]}  # large enough for no recipe to bypass it

COUNTERS: dict[str, Callable[[], int | None]] = {
    "link_bytes": own_link_bytes,
    "socket_bytes": bytes_written,
}
"""Bytes sent so far: by the node's link, and by this rank's sockets."""


def measure(case: Case, rank: int, report_step: ReportStep) -> Message:
    """One training run. A tiny one before compiles what would otherwise be compiled in it."""
    rehearsal: Message = {"steps": 2, "max_steps": 2}
    if case["device"] == "cpu":
        rehearsal |= {"shapes": REHEARSAL, "work": dict.fromkeys(REHEARSAL, 1), "compute": 0.0}
    train(case | rehearsal, rank, ignore_step)
    return train(case, rank, report_step, settled=case["shapes"] is not None)


def train(case: Case, rank: int, report_step: ReportStep, settled: bool = False) -> Message:
    """Seconds and bytes of each step on this rank, and its loss as the mean over all ranks.

    Ends after `steps`, or later, once the smoothed loss has reached `target`, and at the latest
    after `max_steps`. Between the steps, off the clock, the ranks agree on the loss. `settled`:
    what `auto` tries before it decides is off the clock too, since there is nothing to learn.
    """
    load: Workload = TaskLoad(case, rank) if case["shapes"] is None else ShapeLoad(case, rank)
    wrap = DistributedDataParallel if case["overlap"] else HeldBack
    ddp = wrap(load.model, gradient_as_bucket_view=True, init_sync=False)
    pace = Pace(case["compute"], load.work, dict(load.model.named_parameters()))
    handle = compress(ddp, case["recipe"], case["arguments"], case["seed"])
    record: dict[str, list[Any]] = {name: [] for name in ("seconds", "losses", *COUNTERS)}
    reached = case["target"] is None
    try:
        while settled and handle is not None and not handle.synchronizer.choosers.settled:
            _timed_step(load, ddp, pace)
        for step in range(1, case["max_steps"] + 1):
            load.prepare(step)
            before = {name: count() for name, count in COUNTERS.items()}
            seconds, loss = _timed_step(load, ddp, pace)
            for name, count in COUNTERS.items():
                record[name].append(_difference(count(), before[name]))
            record["seconds"].append(seconds)
            record["losses"].append(_mean(loss))
            report_step(f"loss {record['losses'][-1]:.3f}" if case["shapes"] is None else "")
            reached = reached or smoothed(record["losses"], case["window"]) <= case["target"]
            if reached and step >= case["steps"]:
                break
        return {**record, "phases": _phases(handle)}
    finally:
        if handle is not None:
            handle.close()
        del load, ddp, pace, handle
        gc.collect()  # DDP and its hook hold each other; the next run needs the memory


class Workload(Protocol):
    """What is trained."""

    model: nn.Module
    work: dict[str, int]  # each parameter's share of the declared compute, in forward order

    def prepare(self, step: int) -> None:
        """Fetch the step's examples, off the clock."""

    def loss(self, ddp: nn.Module) -> Tensor:
        """The forward pass."""

    def learn(self) -> None:
        """The optimiser's step."""


class TaskLoad:
    """A small model on its data.

    The learning rate stays as it is: a time to a target should not depend on where a run ends.
    """

    def __init__(self, case: Case, rank: int) -> None:
        self._task, self._seed, self._rank = TASKS[case["model"]], case["seed"], rank
        torch.manual_seed(self._seed)
        self._device = torch.device(case["device"])
        self.model = self._task.model().to(self._device)
        self.work = {name: p.numel() for name, p in self.model.named_parameters()}
        self._optimizer = torch.optim.SGD(
            self.model.parameters(), lr=case["learning_rate"], momentum=case["momentum"]
        )

    def prepare(self, step: int) -> None:
        inputs, targets = self._task.batch_at(self._seed, step, self._rank)
        self._inputs, self._targets = inputs.to(self._device), targets.to(self._device)

    def loss(self, ddp: nn.Module) -> Tensor:
        return F.cross_entropy(ddp(self._inputs), self._targets)

    def learn(self) -> None:
        self._optimizer.step()


class ShapeLoad:
    """Shapes, with synthetic gradients and no loss. The optimiser is part of the declared time."""

    def __init__(self, case: Case, rank: int) -> None:
        self.model: nn.Module = ShapeModel(case["shapes"], rank, case["seed"])
        self.work = {plain(name): work for name, work in case["work"].items()}

    def prepare(self, step: int) -> None:
        """The model makes its gradients itself."""

    def loss(self, ddp: nn.Module) -> Tensor:
        output: Tensor = ddp()
        return output

    def learn(self) -> None:
        """Nothing changes."""


def _timed_step(load: Workload, ddp: nn.Module, pace: Pace) -> tuple[float, Tensor]:
    started = time.perf_counter()
    pace.start()
    ddp.zero_grad()
    loss = load.loss(ddp)
    pace.end_forward()
    torch.autograd.backward(loss)
    load.learn()
    if loss.is_cuda:
        torch.cuda.synchronize(loss.device)
    return time.perf_counter() - started, loss.detach()


def smoothed(losses: list[float], window: int) -> float:
    """The mean over the last few steps."""
    last = losses[-window:]
    return sum(last) / len(last)


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _mean(loss: Tensor) -> float:
    total = loss.double()
    dist.all_reduce(total)
    return float(total / dist.get_world_size())


def _phases(handle: Handle | None) -> dict[str, float]:
    """Seconds per step, by phase, in the thread that exchanges."""
    if handle is None:
        return {}
    total = handle.stats()["total"]
    steps = max(1, total["steps"] - total["first_steps"]["steps"])
    return {phase: seconds / steps for phase, seconds in total["seconds"].items()}
