"""What `compress` gives back: the hook of a DDP model, statistics, checkpoints, the end."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from thinwire.engine.backward import BackwardPass
from thinwire.engine.finite import values_of
from thinwire.engine.synchronizer import Synchronizer


@dataclass(frozen=True, slots=True)
class Bucket:
    """What DDP handed over: gradients by name, the memory they lie in, and what it waits for."""

    grads: dict[str, Tensor]
    buffer: Tensor
    future: torch.futures.Future[Tensor]


class Handle:
    """What `compress` gives back: statistics, checkpoints, the end."""

    def __init__(
        self,
        ddp: DistributedDataParallel,
        synchronizer: Synchronizer,
        grad_scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        self.synchronizer = synchronizer
        # DDP owns its reducer, the reducer this handle: a strong reference back would keep all.
        self._ddp = weakref.ref(ddp)
        self._names = {id(p): _plain(name) for name, p in ddp.module.named_parameters()}
        form = "; ".join(f"{n}: {tuple(p.shape)} {p.dtype}" for n, p in named(ddp).items())
        synchronizer.comm.agree("the model", form)
        self._scaler = grad_scaler
        self._scale: float | None = None
        self._step: BackwardPass | None = None
        self._buckets: list[Bucket] = []
        self._failure: Exception | None = None

    def stats(self) -> dict[str, Any]:
        """Bytes, counts and seconds by phase; see `Synchronizer.stats`."""
        return self.synchronizer.stats()

    def explain(self) -> str:
        """Which way each bucket goes and why; see `Synchronizer.explain`."""
        return self.synchronizer.explain()

    def state_dict(self) -> dict[str, Any]:
        """What this rank must remember, to be saved beside the model: it differs by rank."""
        return self.synchronizer.state_dict() | {"scale": self._scale or 0.0}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Go on from a saved state; at another P pass the list of all ranks' states."""
        self.synchronizer.load_state_dict(state)
        first = state if isinstance(state, Mapping) else state[0]
        self._scale = first.get("scale") or None

    def close(self) -> None:
        """End the worker and its process groups. DDP keeps the hook: train no further with it."""
        self.synchronizer.close()

    def _hook(self, state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Called by DDP when a bucket is ready; the worker takes it from there, in order."""
        buffer = bucket.buffer()
        future: torch.futures.Future[Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None
        )
        names = [self._names[id(p)] for p in bucket.parameters()]
        grads = [buffer] if buffer.is_sparse else bucket.gradients()
        if bucket.index() == 0:
            self._follow_scale()
        if bucket.is_last():
            self._raise_after_backward()
        ready = Bucket(dict(zip(names, grads, strict=True)), buffer, future)
        first, last = bucket.index() == 0, bucket.is_last()
        # Also where nothing asks the host: queueing takes time, which the backward pass can use.
        self.synchronizer.runner.worker.submit(buffer.device, self._take, ready, first, last)
        return future

    @property
    def _may_be_unused(self) -> bool:
        ddp = self._ddp()
        return ddp is not None and ddp.find_unused_parameters and not ddp.static_graph

    def _take(self, bucket: "Bucket", first: bool, last: bool) -> None:
        """One bucket, in the worker. Futures are kept until the step is whole.

        DDP waits for all of them anyway, and a NaN in the last bucket must still be able to
        undo the first.
        """
        if first or self._step is None:
            self._step = BackwardPass(self.synchronizer, may_be_unused=self._may_be_unused)
            self._buckets = []
        self._buckets.append(bucket)
        self._step.add(bucket.grads)
        if not last:
            return
        step, buckets = self._step, self._buckets
        self._step, self._buckets = None, []
        try:
            rows = step.finish()
        except Exception as error:
            rows, self._failure = {}, error
            for bucket in buckets:
                values_of(bucket.buffer).fill_(torch.nan)
        for bucket in buckets:
            # A COO gradient has a bucket of its own.
            name = next(iter(bucket.grads))
            bucket.future.set_result(rows.get(name, bucket.buffer))

    def _raise_after_backward(self) -> None:
        """Arrange for a failure in the worker to be raised by `backward()`.

        An exception set on DDP's future would come out as a RuntimeError of another name, in
        the middle of DDP's own clean-up. Callbacks run when the backward pass is over, in the
        order they were queued; DDP queues its own after this one, so this one queues another.
        """
        engine = torch.autograd.Variable._execution_engine

        def raise_failure() -> None:
            error, self._failure = self._failure, None
            if error is not None:
                raise error

        try:
            engine.queue_callback(lambda: engine.queue_callback(raise_failure))
        except RuntimeError:
            # A joined rank shadows the others outside of any backward pass: `_take` of the
            # next step, or the end of the others, will tell.
            return

    def _follow_scale(self) -> None:
        if self._scaler is None:
            return
        scale = self._scaler.get_scale()
        if self._scale is not None and scale != self._scale:
            self.synchronizer.scale_state(scale / self._scale)
        self._scale = scale


def named(ddp: DistributedDataParallel) -> dict[str, torch.nn.Parameter]:
    """The parameters DDP synchronises, by the names the user gave them."""
    return {_plain(n): p for n, p in ddp.module.named_parameters() if p.requires_grad}


def _plain(name: str) -> str:
    """torch.compile puts a module of its own in between."""
    return name.replace("_orig_mod.", "")
