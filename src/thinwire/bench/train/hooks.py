"""A recipe or a peer in DDP, with and without overlap.

With overlap, DDP's ordinary way, a bucket is exchanged as soon as it is ready. Without, every
bucket waits for the last one, which is ready when the backward pass has ended; buckets, hooks and
results are the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from thinwire.bench.peers import PEERS, SPARSE_PEERS, Hook
from thinwire.bench.train.rounds import rounds_of
from thinwire.engine.thread import OrderedWorker
from thinwire.frontends import Handle, Outer
from thinwire.frontends.torch_private import GradBucket

Hooked = Callable[[object, GradBucket], Future[Tensor]]
DDP_PEERS = tuple(name for name in PEERS if name not in SPARSE_PEERS)
JOINED = "optim:"  # before a recipe that the optimiser takes part in


class HeldBack(DistributedDataParallel):
    """DDP whose hooks see no bucket before all are ready."""

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        super().register_comm_hook(state, _Queue(hook).call)


class _Queue:
    """Holds every bucket back until the last one is there."""

    def __init__(self, hook: Hooked) -> None:
        self._hook = hook
        self._held: list[tuple[GradBucket, Future[Tensor]]] = []

    def call(self, state: object, bucket: GradBucket) -> Future[Tensor]:
        promised: Future[Tensor] = Future()
        self._held.append((bucket, promised))
        if bucket.is_last():
            held, self._held = self._held, []
            for ready, result in held:
                self._hook(state, ready).then(partial(_pass_on, result))
        return promised


class _Renamed:
    """DDP refuses bf16_compress_hook without CUDA, by its name, though Gloo can add bfloat16."""

    def __init__(self, hook: Hooked) -> None:
        self._hook = hook

    def call(self, state: object, bucket: GradBucket) -> Future[Tensor]:
        return self._hook(state, bucket)


class _InOrder:
    """One bucket after the other: PowerSGD starts collectives in callbacks of others.

    With two buckets under way each rank would start them in an order of its own. NCCL's stream
    would put them in order; on Gloo ranks then read each other's wrong messages.
    """

    def __init__(self, hook: Hooked) -> None:
        self._hook = hook
        self._worker = OrderedWorker()  # its thread ends with this object

    def call(self, state: object, bucket: GradBucket) -> Future[Tensor]:
        promised: Future[Tensor] = Future()
        self._worker.submit(bucket.buffer().device, self._take, state, bucket, promised)
        return promised

    def _take(self, state: object, bucket: GradBucket, promised: Future[Tensor]) -> None:
        _settle(promised, lambda: self._hook(state, bucket).wait())


def _pass_on(promised: Future[Tensor], finished: Future[Tensor]) -> None:
    _settle(promised, finished.value)


def _settle(promised: Future[Tensor], result: Callable[[], Tensor]) -> None:
    """The result, or the error: DDP waits for either."""
    try:
        promised.set_result(result())
    except Exception as error:
        promised.set_exception(error)  # type: ignore[arg-type]  # torch declares it wrongly


def take_part(
    ddp: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    recipe: str,
    arguments: dict[str, Any],
    seed: int,
) -> tuple[Handle | Outer | None, torch.optim.Optimizer]:
    """As `compress`; and the optimiser, which takes part in some recipes: `thinwire.optim`.

    Those are asked for by `optim:`, or have the feedback `adam`, which cannot do without. With
    local steps, as `sparseloco@15`, DDP must not exchange anything.
    """
    if rounds := rounds_of(recipe):
        handle = tw.outer(
            *(ddp, optimizer, rounds.recipe),
            every=rounds.every,
            outer=rounds.outer,
            delay=rounds.delay,
            seed=seed,
            **rounds.others,
        )
        return handle, optimizer
    if recipe not in DDP_PEERS:
        pipeline = tw.recipe(recipe.removeprefix(JOINED), **arguments)
        if recipe.startswith(JOINED) or any(own.feedback.is_step for own in pipeline.alternatives):
            joined = tw.optim(optimizer, ddp, pipeline, seed=seed)
            return joined.handle, joined
    return compress(ddp, recipe, arguments, seed), optimizer


def compress(
    ddp: DistributedDataParallel, recipe: str, arguments: dict[str, Any], seed: int
) -> Handle | None:
    """The recipe's handle; a peer is a hook and has none."""
    if recipe not in DDP_PEERS:
        pipeline = tw.recipe(recipe, **arguments) if arguments else tw.resolve(recipe)
        return tw.compress(ddp, pipeline, seed=seed)
    peer = PEERS[recipe](0.0)
    assert isinstance(peer, Hook)
    hook = peer.hook
    on_gloo = dist.get_backend() == "gloo"
    if on_gloo:
        hook = _Renamed(peer.hook).call
    if isinstance(peer.state, PowerSGDState):
        # It keeps errors by bucket, and DDP makes its buckets anew after the first step.
        peer.state.iter, peer.state.start_powerSGD_iter = 0, 2
        if on_gloo:
            hook = _InOrder(peer.hook).call
    ddp.register_comm_hook(peer.state, hook)
    return None
