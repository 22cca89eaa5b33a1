"""A user's own training script, run for some steps as it is, and watched from outside.

Its DDP model is noticed when it is made, its steps by a hook that PyTorch has for all optimisers.
After some steps as they are, some follow without the exchange: what those take is the compute. What
its gradients take alone is timed last. Then the script is ended: what it learnt in between is worth
nothing.
"""

import runpy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from thinwire.errors import ThinwireError
from thinwire.plan.models import Model

WARM_UP = 5  # steps in which DDP finds its buckets and everything is compiled
ALONE = 0.4  # of the others: without the exchange
BUCKET = 25 << 20  # bytes: DDP's own
EXCHANGES = 3  # that are timed by themselves


class Enough(SystemExit):
    """Ends a script in the middle of its training, as an exit does."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a step took, over all ranks the longest, and without its exchange."""

    model: Model  # with the compute that was seen
    step: float
    workers: int
    device: torch.device
    exchange: float | None = None  # by itself; None: not known
    hook: str = ""  # that the script has given to DDP

    @property
    def waited(self) -> float:
        """Seconds of a step in which nothing but the exchange went on."""
        return max(0.0, self.step - self.model.compute)

    def __str__(self) -> str:
        share = self.waited / self.step if self.step else 0.0
        text = (
            f"{self.model.name} as it is: a step takes {1000 * self.step:.3g} ms, of which "
            f"{1000 * self.model.compute:.3g} ms are compute; the exchange is waited for in "
            f"{share:.0%} of the time."
        )
        if self.exchange:
            hidden = max(0.0, 1 - self.waited / self.exchange)
            took = f"{1000 * self.exchange:.3g} ms"
            text += f" By itself it takes {took}: {hidden:.0%} of it hides behind the compute."
        if self.hook:
            text += f" The script exchanges by {self.hook} already, and these steps were its."
        return text


def observe(
    script: Path, arguments: Sequence[str], steps: int, then: Callable[[Observed], None]
) -> None:
    """Run the script until it has made so many steps; `then`, while its ranks are still there."""
    watcher = Watcher(script.name, steps, then)
    before = sys.argv
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))  # as Python does for a script
    try:
        with watcher.watching():
            runpy.run_path(str(script), run_name="__main__")
    except Enough:
        return
    finally:
        sys.path.remove(str(script.parent))
        sys.argv = before
    raise ThinwireError(watcher.too_few())


class Watcher:
    """Counts the steps of the optimiser that has the DDP model's parameters."""

    def __init__(self, name: str, steps: int, then: Callable[[Observed], None]) -> None:
        self._name, self._then = name, then
        self._as_is = WARM_UP + max(1, round((1 - ALONE) * (steps - WARM_UP)))
        self._steps = max(steps, self._as_is + 1)
        self._ddp: DistributedDataParallel | None = None
        self.hook = ""
        self._made, self._marks = 0, dict[int, float]()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notice a DDP model, and steps, as long as this lasts."""
        plain = DistributedDataParallel.__init__
        register = DistributedDataParallel.register_comm_hook

        def noticed(ddp: DistributedDataParallel, *args: Any, **settings: Any) -> None:
            plain(ddp, *args, **settings)
            self._ddp = ddp

        def registered(ddp: DistributedDataParallel, state: object, hook: Any) -> None:
            register(ddp, state, hook)
            ours = hook.__module__.startswith("thinwire.")
            self.hook = "thinwire" if ours else hook.__qualname__

        DistributedDataParallel.__init__ = noticed  # type: ignore[method-assign, assignment]
        DistributedDataParallel.register_comm_hook = registered  # type: ignore[method-assign, assignment]
        hook = register_optimizer_step_post_hook(self._after_step)
        try:
            yield
        finally:
            hook.remove()
            DistributedDataParallel.__init__ = plain  # type: ignore[method-assign]
            DistributedDataParallel.register_comm_hook = register  # type: ignore[method-assign]

    def too_few(self) -> str:
        """Why there is nothing to say."""
        if self._ddp is None:
            return (
                f"{self._name} made no DistributedDataParallel model: doctor looks at DDP scripts"
            )
        return f"{self._name} ended after {self._made} of {self._steps} steps: let it make more"

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        ddp = self._ddp
        if ddp is None or not _steps_for(optimizer, ddp):
            return
        self._made += 1
        if self._made in (WARM_UP, self._as_is, self._steps):
            self._marks[self._made] = _now(next(ddp.parameters()).device)
        if self._made == self._as_is:
            ddp.require_backward_grad_sync = False  # as `no_sync()` does
        if self._made == self._steps:
            self._then(self._observed(ddp))
            raise Enough(0)

    def _observed(self, ddp: DistributedDataParallel) -> Observed:
        begin, middle, end = (self._marks[at] for at in (WARM_UP, self._as_is, self._steps))
        device = next(ddp.parameters()).device
        took = [(middle - begin) / (self._as_is - WARM_UP), (end - middle) / self._alone]
        took.append(_exchange(ddp))
        slowest = torch.tensor(took, dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=ddp.process_group)
        step, compute, exchange = slowest.tolist()
        shapes = {n: tuple(p.shape) for n, p in ddp.module.named_parameters() if p.requires_grad}
        model = Model(self._name, shapes, compute=min(step, compute))
        workers = dist.get_world_size(ddp.process_group)
        return Observed(model, step, workers, device, None if self.hook else exchange, self.hook)

    @property
    def _alone(self) -> int:
        return self._steps - self._as_is


def _steps_for(optimizer: torch.optim.Optimizer, ddp: DistributedDataParallel) -> bool:
    first = next(ddp.parameters())
    return any(p is first for group in optimizer.param_groups for p in group["params"])


def _exchange(ddp: DistributedDataParallel) -> float:
    """Seconds that allreduces of all gradients take, bucket by bucket, with nothing beside them."""
    trained = [parameter for parameter in ddp.parameters() if parameter.requires_grad]
    left = sum(parameter.numel() for parameter in trained)
    bucket = trained[0].new_zeros(min(left, BUCKET // trained[0].element_size()))
    sizes = [min(len(bucket), left - at) for at in range(0, left, len(bucket))]
    dist.barrier(group=ddp.process_group)
    begin = _now(bucket.device)
    for size in sizes * EXCHANGES:
        dist.all_reduce(bucket[:size], group=ddp.process_group)
    return (_now(bucket.device) - begin) / EXCHANGES


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
