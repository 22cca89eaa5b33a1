"""The DDP front end: a hook hands buckets over, and the backward pass exchanges as it goes."""

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from thinwire.engine.backward import BackwardPass
from thinwire.engine.finite import values_of
from thinwire.engine.given import as_real
from thinwire.engine.saved import Saved
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import ClosedError, RecipeError
from thinwire.frontends.handle import Handle, plain, trained
from thinwire.frontends.torch_private import GradBucket, after_backward, has_hook


@dataclass(frozen=True, slots=True)
class Bucket:
    """What DDP handed over: gradients by name, which of them were used here, where they may be
    unused, the memory they lie in, and what it waits for.
    """

    grads: dict[str, Tensor]
    used: set[str]
    buffer: Tensor
    future: torch.futures.Future[Tensor]


class DDPHandle(Handle):
    """The hook of a DDP model."""

    def __init__(
        self,
        ddp: DistributedDataParallel,
        synchronizer: Synchronizer,
        grad_scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        unused = f"{ddp.find_unused_parameters=}, {ddp.static_graph=}"  # who looks for them sends
        super().__init__(synchronizer, named(ddp), grad_scaler, unused)
        # DDP owns its reducer, the reducer this handle: a strong reference back would keep all.
        self._ddp = weakref.ref(ddp)
        self._names = {id(p): plain(name) for name, p in ddp.module.named_parameters()}
        self._used: set[str] = set()  # by this rank since the last step, in whichever pass
        self._marks = list(_marks(ddp, self._used)) if ddp.find_unused_parameters else []
        self._step: BackwardPass | None = None
        self._buckets: list[Bucket] = []
        self._added: list[list[str]] = []  # of this step, by the buckets that its units are made of
        self._regroup = Regroup([])
        self._failure: Exception | None = None
        ddp.register_comm_hook(None, self._hook)

    def _hook(self, state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Called by DDP when a bucket is ready; the worker takes it from there, in order."""
        if self.synchronizer.closed:
            raise ClosedError(
                "close() ended the exchange of this model, which keeps its hook for life: wrap "
                "the module in a new DistributedDataParallel to train on"
            )
        buffer = bucket.buffer()
        future: torch.futures.Future[Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None
        )
        names = [self._names[id(p)] for p in bucket.parameters()]
        if bucket.index() == 0:
            self._follow_scale()
        used = self._used.intersection(names)
        if bucket.is_last():
            self._used.clear()
            self._raise_after_backward()
        ready = Bucket(dict(zip(names, gradients(bucket), strict=True)), used, buffer, future)
        first, last = bucket.index() == 0, bucket.is_last()
        # Also where nothing asks the host: queueing takes time, which the backward pass can use.
        self.synchronizer.runner.worker.submit(buffer.device, self._take, ready, first, last)
        return future

    def load_state_dict(
        self, state: Saved, *, recipe_changed: bool = False, lost: Collection[int] = ()
    ) -> None:
        """Go on from a saved state, on all ranks; see `Synchronizer.load_state_dict`."""
        super().load_state_dict(state, recipe_changed=recipe_changed, lost=lost)
        self._regroup = Regroup(self.synchronizer.buckets)

    def close(self) -> None:
        """End the worker and its process groups. The model keeps its hooks: train no further."""
        for mark in self._marks:
            mark.remove()
        super().close()

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
            self._buckets, self._added = [], []
            self._failure = None  # of a step that a joined rank shadowed: nobody was there to tell
        self._buckets.append(bucket)
        used = {name for one in self._buckets for name in one.used}
        for grads in self._regroup.take(bucket.grads, last):
            self._step.add(grads, used)
            self._added.append(list(grads))
        if not last:
            return
        step, buckets, self.synchronizer.buckets = self._step, self._buckets, self._added
        self._step, self._buckets, self._regroup = None, [], Regroup([])
        rows = self._finish(step, buckets)
        for bucket in buckets:
            # A COO gradient has a bucket of its own.
            name = next(iter(bucket.grads))
            bucket.future.set_result(rows.get(name, bucket.buffer))

    def _finish(self, step: BackwardPass, buckets: Sequence[Bucket]) -> dict[str, Tensor]:
        """What takes the place of COO gradients. Errors are raised after the backward pass."""
        try:
            rows = step.finish()
            self._audit()
        except Exception as error:
            self._failure = error
            for bucket in buckets:
                values_of(bucket.buffer).fill_(torch.nan)
            return {}
        try:
            self.synchronizer.tell()
        except Exception as error:
            self._failure = error
        return rows

    def _audit(self) -> None:
        """Compare the parameters, as the last step left them; nothing changes them now."""
        ddp = self._ddp()
        if self.synchronizer.audit.is_due() and ddp is not None:
            self.synchronizer.audit.compare("the ranks' parameters", named(ddp))

    def _raise_after_backward(self) -> None:
        """Arrange for a failure in the worker to be raised by `backward()`.

        An exception set on DDP's future would come out as a RuntimeError of another name, in
        the middle of DDP's own clean-up. Callbacks run when the backward pass is over, in the
        order they were queued; DDP queues its own after this one, so this one queues another.
        """

        def raise_failure() -> None:
            error, self._failure = self._failure, None
            if error is not None:
                raise error

        try:
            after_backward(lambda: after_backward(raise_failure))
        except RuntimeError:
            # A joined rank shadows the others outside of any backward pass: `_take` of the
            # next step, or the end of the others, will tell.
            return


class Regroup:
    """Gradients by the buckets of the step before a save, for the first step after a load.

    DDP finds its buckets in the first step of a process, and in that has others, which sums would
    be rounded otherwise in, and selections over a bucket would choose otherwise from.
    """

    def __init__(self, buckets: list[list[str]]) -> None:
        self._awaited = [list(names) for names in buckets]
        self._held: dict[str, Tensor] = {}

    def take(self, grads: Mapping[str, Tensor], last: bool) -> Iterator[dict[str, Tensor]]:
        """The buckets that are whole now that these have come; after the last all that is left."""
        self._held |= grads
        while self._awaited and self._held.keys() >= set(self._awaited[0]):
            yield {name: self._held.pop(name) for name in self._awaited.pop(0)}
        if self._held and (last or not self._awaited):
            held, self._held = self._held, {}
            yield held


def _marks(ddp: DistributedDataParallel, used: set[str]) -> Iterator[RemovableHandle]:
    """Note whatever gets a gradient: before DDP hears of it, and under `no_sync` too."""
    for name, p in named(ddp).items():
        yield p.register_post_accumulate_grad_hook(partial(_note, used, name))


def _note(used: set[str], name: str, parameter: Tensor) -> None:
    used.add(name)


def gradients(bucket: GradBucket) -> list[Tensor]:
    """Views of a bucket's memory, one for each parameter; complex ones as pairs of numbers."""
    buffer, parameters = bucket.buffer(), bucket.parameters()
    if buffer.is_sparse:
        return [buffer]
    if not any(p.is_complex() for p in parameters):
        return bucket.gradients()
    forms = [as_real(p).shape for p in parameters]
    parts = buffer.split([form.numel() for form in forms])
    return [part.view(form) for part, form in zip(parts, forms, strict=True)]


def named(ddp: DistributedDataParallel) -> dict[str, torch.nn.Parameter]:
    """The parameters DDP synchronises, by the names the user gave them."""
    ignored = {plain(name) for name in ddp.parameters_to_ignore}
    return {name: p for name, p in trained(ddp.module).items() if name not in ignored}


def without_hook(ddp: DistributedDataParallel) -> DistributedDataParallel:
    """A DDP model that has no hook yet: it takes one for life."""
    if has_hook(ddp):
        raise RecipeError(
            "this DistributedDataParallel model has a communication hook already, and takes one "
            "for life: go on with the handle of the first compress(), or wrap the model anew"
        )
    return ddp
