"""What a rank does for `thinwire bench converge`: learn, and look at unseen examples on the way.

The way a step goes, and how it is timed, is that of `bench train --device`.
"""

import math
from contextlib import closing
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from thinwire.bench.steps.case import FIRST, Training, Workload, deadline, restart_deadline
from thinwire.frontends import Outer
from thinwire.lab.rank_main import Case, Message, ReportStep
from thinwire.lab.ranks import ignore_step
from thinwire.workloads.lessons import LESSONS, Lesson, Tensors, load, make_optimizer
from thinwire.workloads.real import loss_of

WARM_UP = 0.1  # of the steps: the learning rate rises
LAST = 0.1  # of the learning rate is left at the end


def measure(case: Case, rank: int, report_step: ReportStep) -> Message:
    """Learn, or be timed; a rank that hangs says where and ends."""
    if case["rehearse"]:  # compiles what would otherwise be compiled in the first steps
        short = case | {"steps": FIRST, "every": FIRST, "trace": False}
        with deadline(case), closing(Learning(short, rank, ignore_step)) as rehearsal:
            rehearsal.learn()
    with deadline(case), closing(Learning(case, rank, report_step)) as training:
        return training.measure() if case["what"] == "time" else training.learn()


def rate_at(step: int, steps: int) -> float:
    """Of the learning rate: up in a line, then down along a cosine."""
    rise = max(1, round(WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    down = (step - rise) / max(1, steps - rise)
    return LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * down))


class Examples:
    """A lesson with its data, as a workload of `bench train`."""

    distinct = None

    def __init__(self, lesson: Lesson, data: Tensors) -> None:
        self.build = partial(lesson.build, data)
        self.batch_at = partial(lesson.batch_at, data)


class Learning(Training):
    """A run with warm-up and cosine, and a held-out part."""

    ddp: DistributedDataParallel

    def workload(self) -> Workload:
        self.lesson = replace(LESSONS[self.case["model"]], examples=self.case["examples"])
        self.data = load(self.case["data"])
        return Examples(self.lesson, self.data)

    def make_optimizer(self, momentum: float) -> torch.optim.Optimizer:
        parameters = list(self.ddp.parameters())
        rate = self.case["learning_rate"]
        return make_optimizer(self.case["optimizer"], parameters, rate, momentum)

    def learn(self) -> Message:
        """The loss on unseen examples every so many steps, with bytes and seconds in between."""
        mine = self.lesson.held_out(self.data, self.rank, dist.get_world_size())
        self.unseen = [part.to(self.device).split(self.lesson.examples) for part in mine]
        points: list[Message] = [{"step": 0, **self.look()}]
        for start in range(0, self.case["steps"], self.case["every"]):
            restart_deadline(self.case)
            points.append(self.stretch(min(self.case["every"], self.case["steps"] - start)))
            if not math.isfinite(points[-1]["held_out_loss"]):
                break  # on every rank: the loss is theirs together
        found = {"points": points, "losses": self.mean_losses(), **self.of_the_library()}
        return found | {"spans": self.trace() if self.case["trace"] else []}

    def stretch(self, count: int) -> Message:
        """So many steps, and then a look; what only looking costs is not counted."""
        self.fetch(count)
        before, started = self.start_counting(), self.end()
        for _ in range(count):
            self.step()
        if isinstance(self.handle, Outer) and len(self.losses) == self.case["steps"]:
            self.handle.synchronize()  # as before a model is saved: all ranks have one
        seconds = self.end() - started
        link, sockets = self.counted(before)
        seen = self.look()
        self.note = f"loss {seen['held_out_loss']:.3f}"
        return {
            "step": len(self.losses),
            **seen,
            "seconds": seconds,
            "link_bytes": link,
            "socket_bytes": sockets,
        }

    def step(self) -> None:
        factor = rate_at(len(self.losses), self.case["steps"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.case["learning_rate"] * factor
        super().step()

    @torch.no_grad()
    def look(self) -> Message:
        """At all ranks' shares of what is held out: the mean loss in nats, and the hits."""
        model = self.ddp.module
        for buffer in model.buffers():  # each rank's running means are of its own examples
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer.div_(dist.get_world_size())
        model.eval()
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        for inputs, targets in zip(*self.unseen, strict=True):
            with self.precision():
                logits: Tensor = model(inputs)
                loss = loss_of(logits, targets)
            answers = logits.topk(min(self.lesson.top, logits.shape[-1])).indices
            sums[0] += loss * targets.numel()
            sums[1] += (answers == targets.unsqueeze(-1)).sum()
            sums[2] += targets.numel()
        model.train()
        dist.all_reduce(sums)
        loss_sum, hits, count = sums.tolist()
        return {"held_out_loss": loss_sum / count, "held_out_hits": hits / count}
