"""What one rank does: join the group, then train whatever it is told, over real DDP."""

import os
import socket
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from thinwire.demo.plan import Job
from thinwire.workloads.tasks import TASKS, Task

Message = dict[str, Any]
Row = dict[str, Any]
POINTS = 40  # rows kept of a run: enough for a smooth curve


def serve(rank: int, workers: int, store: str, timeout_s: float, parent: Connection) -> None:
    """Train each job that arrives and answer with its rows; end when the parent hangs up."""
    try:
        _join(rank, workers, store, timeout_s)
        parent.send({"kind": "ready"})
        while (job := parent.recv()) is not None:
            report = parent.send if rank == 0 else _say_nothing
            parent.send({"kind": "done", "rows": train(Job(**job), rank, workers, report)})
        dist.destroy_process_group()
    except (EOFError, BrokenPipeError):
        return  # the parent is gone, and nobody is left to tell
    except Exception:
        parent.send({"kind": "failed", "error": traceback.format_exc()})


def _join(rank: int, workers: int, store: str, timeout_s: float) -> None:
    torch.set_num_threads(1)  # the workers share the machine's cores
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=workers,
        timeout=timedelta(seconds=timeout_s),
    )


def _say_nothing(message: Message) -> None:
    """Only rank 0 reports progress."""


@dataclass
class Record:
    """What one rank saw, step by step. Bytes are the total since the first step."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    bytes_sent: list[float] = field(default_factory=list)

    def averaged(self) -> "Record":
        """The mean over all ranks, exchanged once at the end so that no step pays for it."""
        mine = torch.tensor([self.losses, self.seconds, self.bytes_sent], dtype=torch.float64)
        dist.all_reduce(mine)
        return Record(*(mine / dist.get_world_size()).tolist())


def train(job: Job, rank: int, workers: int, report: Callable[[Message], None]) -> list[Row]:
    """One run; the rows, the same on every rank, follow its loss from the first step on."""
    task = TASKS[job.task]
    torch.manual_seed(job.seed)
    model = DistributedDataParallel(task.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=job.learning_rate, momentum=job.momentum)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda done: min(1.0, 2 * (1 - done / job.steps)),  # falls in the second half
    )
    handle = tw.compress(model, tw.recipe(job.recipe, **job.arguments), seed=job.seed)
    record = Record()
    try:
        for step in range(1, job.steps + 1):
            images_or_bytes, targets = task.batch_at(job.seed, step, rank)
            started = time.perf_counter()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images_or_bytes), targets)
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            record.seconds.append(time.perf_counter() - started)
            record.losses.append(loss.item())
            record.bytes_sent.append(handle.stats()["total"]["bytes_sent"])
            report({"kind": "progress", "step": step, "loss": record.losses[-1]})
    finally:
        handle.close()
    rows = _rows(job, workers, record.averaged())
    rows[-1] |= _held_out(task, model, rank, workers)
    return rows


def _rows(job: Job, workers: int, record: Record) -> list[Row]:
    """About `POINTS` rows. Each has the mean loss since the row before; the rest is cumulative."""
    stride = max(1, job.steps // POINTS)
    ends = sorted({1, *range(job.steps, 0, -stride)})
    rows, start = [], 0
    for end in ends:
        rows.append(
            {
                "recipe": job.recipe,
                "workers": workers,
                "rate": None,
                "model": job.task,
                "seed": job.seed,
                "step": end,
                "loss": statistics.fmean(record.losses[start:end]),
                "seconds": sum(record.seconds[:end]),
                "bytes_sent_per_rank": round(record.bytes_sent[end - 1]),
            }
        )
        start = end
    # The median, since the first steps compile kernels and allocate.
    rows[-1]["step_seconds"] = statistics.median(record.seconds)
    rows[-1] |= {
        "learning_rate": job.learning_rate,
        "momentum": job.momentum,
        "settings": job.arguments,
    }
    return rows


@torch.no_grad()
def _held_out(task: Task, model: nn.Module, rank: int, workers: int) -> dict[str, float]:
    """Loss (and accuracy, where it counts) on unseen examples, each rank on its share."""
    inputs, targets = task.held_out(rank, workers)
    logits = model(inputs)
    loss = F.cross_entropy(logits, targets, reduction="sum")
    right = (logits.argmax(1) == targets).sum()
    sums = torch.tensor([loss.item(), right.item(), targets.numel()], dtype=torch.float64)
    dist.all_reduce(sums)
    loss_sum, right_sum, count = sums.tolist()
    found = {"held_out_loss": loss_sum / count}
    return found | {"accuracy": right_sum / count} if task.measure == "accuracy" else found
