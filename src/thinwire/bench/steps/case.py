"""What a rank does for `thinwire bench train --device …`: train a real model, step by step.

The device is waited for at the end of a step and nowhere inside it. Everything else is read before
the first timed step and after the last one.
"""

import faulthandler
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from thinwire.bench.peers import BASELINE
from thinwire.bench.sockets import bytes_written
from thinwire.bench.steps.trace import Span, record
from thinwire.bench.train.hooks import take_part
from thinwire.bench.train.rounds import rounds_of
from thinwire.bench.train.tuning import tuning
from thinwire.frontends import Handle, Outer
from thinwire.lab.rank_main import Case, Message, ReportStep, own_link_bytes
from thinwire.report.steps import COMPUTE
from thinwire.workloads.real import REAL, loss_of

FIRST = 4  # steps in which everything is compiled and DDP and PowerSGD find their form
FEWEST = 5  # timed steps, however long they take
MOST_TRIALS = 200  # steps that `auto` may take to decide
REPORT_EVERY = 10  # steps


def measure(case: Case, rank: int, report_step: ReportStep) -> Message:
    """One training run; a rank that hangs in it says where and ends."""
    with deadline(case), closing(Training(case, rank, report_step)) as training:
        return training.measure()


@contextmanager
def deadline(case: Case) -> Iterator[None]:
    """Whoever takes too long writes where it is, and ends."""
    restart_deadline(case)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def restart_deadline(case: Case) -> None:
    faulthandler.dump_traceback_later(case["deadline_s"], exit=True, file=2)  # 2: stderr


class Workload(Protocol):
    """A model and its examples; `distinct` batches, or for each step its own."""

    @property
    def build(self) -> Callable[[], nn.Module]: ...

    @property
    def distinct(self) -> int | None: ...

    def batch_at(self, seed: int, step: int, rank: int) -> tuple[Tensor, Tensor]: ...


class Training:
    """A model under DDP with one way to exchange its gradients."""

    def __init__(self, case: Case, rank: int, report_step: ReportStep) -> None:
        self.case, self.rank, self.report_step = case, rank, report_step
        self.device = torch.device(case["device"])
        # What a run before could not be made to let go of (PyTorch's PowerSGD keeps 1 GB of GPT-2).
        on_gpu = self.device.type == "cuda"
        self.memory_before = torch.cuda.memory_allocated() if on_gpu else 0
        self.real = self.workload()
        torch.manual_seed(case["seed"])
        with self.device:
            model = self.real.build()
        # Running means of a rank's own are none the worse, and no message of DDP's own is timed.
        self.ddp = DistributedDataParallel(
            model, gradient_as_bucket_view=True, init_sync=False, broadcast_buffers=False
        )
        self.optimizer = self.make_optimizer(tuning(case["recipe"].partition("(")[0]).momentum)
        self.handle: Handle | Outer | None = None
        rounds = rounds_of(case["recipe"])
        self.every = 1 if rounds is None else rounds.every  # steps between two exchanges
        if case["recipe"] not in (COMPUTE, BASELINE):
            self.handle, self.optimizer = take_part(
                self.ddp, self.optimizer, case["recipe"], case["arguments"], case["seed"]
            )
        self.batches: dict[int, tuple[Tensor, Tensor]] = {}
        self.losses: list[Tensor] = []
        self.note = ""  # to be shown beside how far it has come

    def workload(self) -> Workload:
        return REAL[self.case["model"]]

    def make_optimizer(self, momentum: float) -> torch.optim.Optimizer:
        """With the momentum that the recipe leaves to it."""
        return REAL[self.case["model"]].optimizer(self.ddp.parameters(), momentum)

    def measure(self) -> Message:
        """When each step ended, in seconds; bytes, memory and losses."""
        warmup = self.warm_up()
        steps = self.whole_rounds(self.affordable(self.case["steps"], self.last_seconds))
        self.fetch(steps)
        before = self.start_counting()
        ends = [self.end()]
        for _ in range(steps):
            self.step()
            ends.append(self.end())
        link, sockets = self.counted(before)
        spans = self.trace() if self.case["trace"] else []
        return {
            "ends": ends,
            "every": self.every,
            "warmup": warmup,
            "link_bytes": link,
            "socket_bytes": sockets,
            "peak_memory": self.peak_memory,
            "losses": self.mean_losses()[: warmup + steps],
            **self.of_the_library(),
            "spans": spans,
        }

    def warm_up(self) -> int:
        """So many steps as asked for, or as are affordable; and until `auto` has decided.

        With local steps a round at least: its exchange compiles what the steps before do not.
        """
        self.timed(FIRST)
        rest = self.affordable(self.case["warmup"], 4 * self.last_seconds, fewest=FIRST) - FIRST
        rest = max(rest, self.every - 1)
        self.timed(rest)
        trials = 0
        while not self.settled() and trials < MOST_TRIALS:
            self.timed(1)
            trials += 1
        return FIRST + rest + trials

    def whole_rounds(self, steps: int) -> int:
        """As many exchanges as belong to the steps, whichever step is the first."""
        return max(1, round(steps / self.every)) * self.every

    def timed(self, count: int) -> None:
        self.fetch(count)
        for _ in range(count):
            started = self.end()
            self.step()
            self.last_seconds = self.end() - started

    def step(self) -> None:
        step = len(self.losses)
        inputs, targets = self.batches[step % (self.real.distinct or step + 1)]
        with self.exchanging():
            with record_function("step::forward"):
                self.optimizer.zero_grad()
                with self.precision():
                    loss = loss_of(self.ddp(inputs), targets)
            with record_function("step::backward"):
                torch.autograd.backward(loss)
        with record_function("step::optimizer"):
            self.optimizer.step()
        self.losses.append(loss.detach())
        if len(self.losses) % REPORT_EVERY == 0:
            self.report_step(self.note)

    def precision(self) -> AbstractContextManager[Any]:
        """bfloat16 where the device is made for it."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def exchanging(self) -> AbstractContextManager[Any]:
        alone = self.case["recipe"] == COMPUTE or isinstance(self.handle, Outer)
        return self.ddp.no_sync() if alone else nullcontext()

    def end(self) -> float:
        """Now, with the device done. The clock is the machine's, the same for all its ranks."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def fetch(self, count: int) -> None:
        """The next steps' examples, on the device before they are needed."""
        first, made = len(self.losses), self.batches
        self.batches = {}
        for step in range(first, first + count):
            number = step % (self.real.distinct or step + 1)
            if number not in made:
                inputs, targets = self.real.batch_at(self.case["seed"], number, self.rank)
                made[number] = inputs.to(self.device), targets.to(self.device)
            self.batches[number] = made[number]

    def affordable(self, count: int, seconds: float, fewest: int = FEWEST) -> int:
        """As many steps as fit into the case's time, the same on every rank."""
        slowest = torch.tensor(seconds, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return max(fewest, min(count, int(self.case["case_s"] / slowest.item())))

    def settled(self) -> bool:
        return self.handle is None or self.handle.synchronizer.choosers.settled

    def start_counting(self) -> tuple[int | None, int | None]:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        dist.barrier()
        return own_link_bytes(), bytes_written()

    def counted(self, before: tuple[int | None, int | None]) -> list[int | None]:
        """Bytes since: by the node's link, by this rank's sockets."""
        on_gpu = self.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated() if on_gpu else None
        self.peak_memory = None if peak is None else peak - self.memory_before
        dist.barrier()
        after = (own_link_bytes(), bytes_written())
        return [
            None if late is None or early is None else late - early
            for early, late in zip(before, after, strict=True)
        ]

    def mean_losses(self) -> list[float]:
        """Over the ranks, step by step."""
        losses = torch.stack(self.losses).double()
        dist.all_reduce(losses)
        means: list[float] = (losses / dist.get_world_size()).tolist()
        return means

    def of_the_library(self) -> Message:
        """What a recipe of ours says of itself."""
        if self.handle is None:
            return {"phases": {}, "counted_bytes": None, "decision": None, "series": {}}
        total = self.handle.stats()["total"]
        steps = self.every * max(1, total["steps"])
        timed = self.every * max(1, total["steps"] - total["first_steps"]["steps"])
        return {
            "phases": {phase: seconds / timed for phase, seconds in total["seconds"].items()},
            "counted_bytes": total["bytes_sent"] / steps,
            "decision": self.handle.synchronizer.choosers.decided(),
            "series": self.handle.stats().get("series", {}),
        }

    def trace(self) -> list[Span]:
        """One step more, in front of the profiler on rank 0; the one before it warms that up."""
        self.fetch(2)
        return record(self.step, self.end, self.device) if self.rank == 0 else self.follow()

    def follow(self) -> list[Span]:
        for _ in range(2):
            self.step()
            self.end()
        return []

    def close(self) -> None:
        if self.handle is not None:
            self.handle.close()
        self.__dict__.clear()
        gc.collect()  # DDP and its hook hold each other; the next run needs the memory
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
