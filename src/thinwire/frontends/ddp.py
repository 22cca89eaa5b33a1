"""The DDP front end: one call registers a hook, and the backward pass exchanges as it goes."""

import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from thinwire.engine.backward import BackwardPass
from thinwire.engine.synchronizer import NonFinite, Synchronizer
from thinwire.pipeline import Pipeline


def compress(
    model: torch.nn.Module,
    recipe: Pipeline | str | Mapping[str, Any],
    *,
    seed: int = 0,
    nonfinite: NonFinite | None = None,
    grad_scaler: "torch.amp.GradScaler | None" = None,
    node_size: int | Literal["auto"] = 1,
    timeout: timedelta | None = None,
) -> "Handle":
    """Exchange the gradients of a DDP model by a recipe, from the next backward pass on.

    Call it on every rank, after wrapping the model and before training. DDP takes one hook
    for life.

    With a `GradScaler` pass it as `grad_scaler`: what waits in the residuals follows changes of
    the loss scale, and an overflow step leaves all state as it was (`nonfinite="propagate"`,
    which is then the default; otherwise NaN and Inf raise). `node_size` and `timeout` are as in
    `Synchronizer`.
    """
    ddp = getattr(model, "_orig_mod", model)  # torch.compile(DDP(...)) wraps once more
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(
            f"compress() takes a DistributedDataParallel model, not {type(model).__name__}; "
            "wrap it first, or use thinwire.Synchronizer without DDP"
        )
    if nonfinite is None:
        nonfinite = "raise" if grad_scaler is None else "propagate"
    sync = Synchronizer(
        recipe,
        ddp.process_group,
        seed,
        nonfinite=nonfinite,
        node_size=node_size,
        timeout=timeout,
    )
    handle = Handle(ddp, sync, grad_scaler)
    ddp.register_comm_hook(None, handle._hook)
    return handle


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
        self._stream: BackwardPass | None = None
        self._pending: list[tuple[torch.futures.Future[Tensor], Tensor]] = []
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
        self.synchronizer.runner.worker.submit(
            buffer.device,
            self._take,
            dict(zip(names, grads, strict=True)),
            buffer,
            bucket.index() == 0,
            bucket.is_last(),
            future,
        )
        return future

    def _take(
        self,
        grads: dict[str, Tensor],
        buffer: Tensor,
        first: bool,
        last: bool,
        future: torch.futures.Future[Tensor],
    ) -> None:
        """One bucket, in the worker. Futures are kept until the step is whole.

        DDP waits for all of them anyway, and a NaN in the last bucket must still be able to
        undo the first.
        """
        if first or self._stream is None:
            ddp = self._ddp()
            unused = ddp is not None and ddp.find_unused_parameters and not ddp.static_graph
            self._stream = BackwardPass(self.synchronizer, may_be_unused=unused)
            self._pending = []
        self._pending.append((future, buffer))
        self._stream.add(grads)
        if not last:
            return
        stream, pending = self._stream, self._pending
        self._stream, self._pending = None, []
        try:
            replaced = stream.finish()
        except Exception as error:
            replaced, self._failure = {}, error
            for _, result in pending:
                (result._values() if result.is_sparse else result).fill_(torch.nan)
        for waiting, result in pending:
            waiting.set_result(replaced.get(id(result), result))

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
