"""What the ranks of the contract tests do. Runs in the workers: imports stay few."""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import distributed_c10d as c10d

import thinwire as tw
from support.contracts import laws
from support.contracts.cases import DTYPES, Case, digest, state_digest
from support.contracts.laws import Step
from thinwire.comm import GroupCommunicator
from thinwire.engine import synchronizer
from thinwire.engine.saved import pack, unpack
from thinwire.types import ExchangeContext, Sparse, TensorSpec, accumulator

TIMEOUT = timedelta(seconds=45)  # on a cold cache a rank compiles for ten or more
TIMEOUT_ON_A_GPU = timedelta(seconds=60)  # a rank may have a kernel to compile


def timeout_of(case: Case) -> timedelta:
    return TIMEOUT if case.device == "cpu" else TIMEOUT_ON_A_GPU


def open_sync(case: Case, group: Any, **settings: Any) -> tw.Synchronizer:
    if case.device != "cpu":
        comm = shared_communicator(group, timeout_of(case))
        return tw.Synchronizer(case.pipeline(), seed=case.seed, comm=comm, **settings)
    timeout = timeout_of(case)
    return tw.Synchronizer(case.pipeline(), group, seed=case.seed, timeout=timeout, **settings)


_shared: list[GroupCommunicator] = []


def shared_communicator(group: Any, timeout: timedelta) -> GroupCommunicator:
    """One for all synchronizers of a run: to make one takes NCCL half a second.

    The cluster destroys all groups between two runs.
    """
    if not _shared or _shared[0]._meta_group not in c10d._world.pg_map:
        _shared[:] = [GroupCommunicator(group, timeout)]
    return _shared[0]


def train(
    group: Any,
    rank: int,
    size: int,
    case: Case,
    saved: list[bytes] | None = None,
    lost: Sequence[int] = (),
) -> list[Step]:
    """All steps of a case, each measured against the recipe's law."""
    sync = open_sync(case, group)
    if saved is not None:
        load(sync, saved, lost)
    pipeline = sync.pipeline
    report, new = [], sync.state_dict()["tensors"]
    for step in range(case.steps):
        old = new
        grads = case.gradients(step, rank, size)
        before = {
            name: grad.reshape(-1).to(torch.float64, copy=True) for name, grad in grads.items()
        }
        updates = sync.average_all(grads)
        new = sync.state_dict()["tensors"]
        layers = dict(zip(case.names(), case.layers, strict=True))
        balances = laws.sums_over_ranks(
            {
                name: laws.balance(pipeline, layer, before[name], old.get(name, {}), new[name])
                for name, layer in layers.items()
                if laws.counts_all(pipeline) or before[name].numel() <= pipeline.bypass
            },
            group,
        )
        excess = []
        for name, layer in layers.items():
            update = updates[name].double().reshape(-1)
            if name in balances:
                gap = laws.conservation_excess(pipeline, layer, balances[name], update, size)
            elif laws.uses_estimates(pipeline):
                dtype = DTYPES[layer.dtype]
                gap = laws.estimate_excess(update, old.get(name), new[name], dtype, group, size)
            else:
                gap = 0.0  # unbiased, not conserving: see test_law_1_unbiased.py
            excess.append(gap)
        report.append(
            Step(
                updates=tuple(digest(updates[name]) for name in case.names()),
                excess=tuple(excess),
                in_place=all(updates[n].data_ptr() == g.data_ptr() for n, g in grads.items()),
            )
        )
    return report


def exchange(group: Any, rank: int, size: int, case: Case) -> list[tuple[str, float]]:
    """Each layer through select and exchange alone: the total's bits, and what delivered lacks."""
    pipeline = case.pipeline()
    timeout = timeout_of(case)
    on_gpu = case.device != "cpu"
    comm = shared_communicator(group, timeout) if on_gpu else GroupCommunicator(group, timeout)
    report = []
    for step in range(case.steps):
        for name, grad in case.gradients(step, rank, size).items():
            x = grad.reshape(-1).to(accumulator(grad.dtype)).contiguous()
            ctx = ExchangeContext(tensor=name, step=step, seed=case.seed, comm=comm)
            spec = TensorSpec(name, x.numel(), x.dtype, x.device)
            chosen = pipeline.sparsifier.select(x, pipeline.sparsifier.init(spec), ctx)
            reduced = pipeline.collective.exchange(chosen, pipeline.codec, ctx)
            total, mine = dense_of(reduced.total), dense_of(reduced.delivered).double()
            meant, moved = laws.sum_over_ranks(torch.stack((mine, mine.abs())), group)
            rounding = laws.Rounding.of(laws.accumulating_dtype(pipeline, grad.dtype, x.numel()))
            allowed = (2 * size + 2) * (rounding.relative * moved + size * rounding.absolute)
            if not getattr(pipeline.collective, "conserves", True):
                allowed += pipeline.codec.error_bound(meant)
            gap = (meant - total.double()).abs()
            report.append((digest(total), laws.worst(gap, allowed)))
    return report


def dense_of(selection: Any) -> torch.Tensor:
    return selection.to_dense() if isinstance(selection, Sparse) else selection


def repeat(
    group: Any, rank: int, size: int, case: Case, threads: tuple[int, ...]
) -> list[tuple[str, str]]:
    """The same case for each number of threads: digests of what was sent, and of the updates."""
    runs = []
    for count in threads:
        torch.set_num_threads(count)
        try:
            sync = open_sync(case, group)
            with recorded() as wire:
                updates = [
                    digest(*sync.average_all(case.gradients(step, rank, size)).values())
                    for step in range(case.steps)
                ]
            runs.append((wire.hexdigest(), " ".join(updates)))
        finally:
            torch.set_num_threads(1)
    return runs


@contextmanager
def recorded() -> Iterator[Any]:
    """A digest of all payload bytes that this rank hands to the network meanwhile."""
    hasher = hashlib.blake2b(digest_size=12)
    methods = {
        name: getattr(GroupCommunicator, name)
        for name in ("all_reduce", "exchange", "exchange_sized")
    }

    def recording(method: Any) -> Any:
        def record(self: Any, given: Any, *arguments: Any) -> Any:
            outgoing = given if isinstance(given, Mapping) else {"all": given}
            for peer, tensor in sorted(outgoing.items()):
                hasher.update(f"{peer} {digest(tensor)}".encode())
            return method(self, given, *arguments)

        return record

    for name, method in methods.items():
        setattr(GroupCommunicator, name, recording(method))
    try:
        yield hasher
    finally:
        for name, method in methods.items():
            setattr(GroupCommunicator, name, method)


@dataclass(frozen=True)
class Poisoned:
    """What became of a step into which one rank brought NaN or Inf."""

    raised: str
    zeros: bool
    nans: bool
    state_kept: bool
    next_update: str
    sent: bool


def poison(
    group: Any, rank: int, size: int, case: Case, nonfinite: str, value: float, culprit: int
) -> tuple[str, Poisoned]:
    """The update of step 1 after step 0; and what becomes of a poisoned step between the two."""
    clean = open_sync(case, group)
    for step in range(2):
        expected = digest(*clean.average_all(case.gradients(step, rank, size)).values())
    sync = open_sync(case, group, nonfinite=nonfinite)
    sync.average_all(case.gradients(0, rank, size))
    before = state_digest(sync)
    grads = case.gradients(7, rank, size)
    if rank == culprit:
        victim = grads[case.names()[-1]]
        victim[victim.shape[0] // 2] = value
    raised, updates = "", []
    with recorded() as wire:
        silence = wire.hexdigest()
        try:
            updates = list(sync.average_all(grads).values())
        except tw.ThinwireError as error:
            raised = f"{type(error).__name__}: {error}"
    return expected, Poisoned(
        raised=raised,
        zeros=bool(updates) and all((u == 0).all() for u in updates),
        nans=bool(updates) and all(u.isnan().all() for u in updates),
        state_kept=state_digest(sync) == before,
        sent=wire.hexdigest() != silence,
        next_update=digest(*sync.average_all(case.gradients(1, rank, size)).values()),
    )


def stop_and_go(
    group: Any, rank: int, size: int, case: Case, stop: int
) -> tuple[list[str], list[str]]:
    """Updates and states from step `stop` on: of one that went on, and of one that was loaded."""

    def steps(sync: tw.Synchronizer, first: int, last: int) -> list[str]:
        return [
            digest(*sync.average_all(case.gradients(step, rank, size)).values())
            + state_digest(sync)
            for step in range(first, last)
        ]

    straight = open_sync(case, group)
    steps(straight, 0, stop)
    saved = save(straight)
    went_on = steps(straight, stop, case.steps)
    loaded = open_sync(case, group)
    loaded.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True))
    return went_on, steps(loaded, stop, case.steps)


def states(group: Any, rank: int, size: int, case: Case) -> bytes:
    """This rank's state after all steps, as a file."""
    sync = open_sync(case, group)
    for step in range(case.steps):
        sync.average_all(case.gradients(step, rank, size))
    return save(sync)


def resaved(
    group: Any, rank: int, size: int, case: Case, saved: list[bytes], lost: Sequence[int] = ()
) -> bytes:
    """This rank's state after loading that of another number of ranks, before any step."""
    sync = open_sync(case, group)
    load(sync, saved, lost)
    return save(sync)


def load(sync: tw.Synchronizer, files: list[bytes], lost: Sequence[int] = ()) -> None:
    """Go on from all ranks' files, but those that are lost."""
    states = [torch.load(io.BytesIO(file), weights_only=True) for file in files]
    sync.load_state_dict(states, lost=lost)


def save(sync: tw.Synchronizer) -> bytes:
    """A file of the state, after it was bytes as in an entry of `torch.distributed.checkpoint`."""
    file = io.BytesIO()
    torch.save(unpack(pack(sync.state_dict())), file)
    return file.getvalue()


def samples(
    group: Any, rank: int, size: int, case: Case
) -> tuple[list[float], list[float], list[float], float]:
    """The same gradient at every step: its true mean over the ranks; then, over the steps, the
    mean and the variance of the updates; and their largest error, in units of the codec's bound.
    """
    sync = open_sync(case, group)
    (name,) = case.names()
    (mine,) = case.gradients(0, rank, size).values()
    true_mean = laws.sum_over_ranks(mine.double(), group) / size
    lossy = getattr(sync.pipeline.codec, "value", sync.pipeline.codec)
    bound = lossy.error_bound(mine) + mine.abs() * torch.finfo(mine.dtype).eps
    allowed = laws.sum_over_ranks(bound.double().clone(), group) / size
    drawn = torch.stack([sync.average(name, mine.clone()).double() for _ in range(case.steps)])
    error = ((drawn - true_mean).abs() / allowed).max().item()
    return true_mean.tolist(), drawn.mean(0).tolist(), drawn.var(0).tolist(), error


FROM_THE_START = ("recipe", "density", "seed", "version")


def disagree(group: Any, rank: int, size: int, case: Case, about: str) -> tuple[str, bool, str]:
    """The last rank comes with something else: what was raised, whether anything was sent, and
    the update of an ordinary step afterwards."""
    odd = rank == size - 1
    grads = case.gradients(0, rank, size)
    first = case.names()[0]
    sync = None if about in FROM_THE_START else open_sync(case, group)
    raised, later = "", ""
    with recorded() as wire:
        silence = wire.hexdigest()
        try:
            if about == "recipe":
                tw.Synchronizer("dense" if odd else case.pipeline(), group, timeout=TIMEOUT)
            elif about == "density":
                tw.Synchronizer(f"topk({0.2 if odd else 0.1})", group, timeout=TIMEOUT)
            elif about == "seed":
                tw.Synchronizer(case.pipeline(), group, seed=int(odd), timeout=TIMEOUT)
            elif about == "version":
                with patch.object(synchronizer, "VERSION", f"0.{int(odd)}"):
                    tw.Synchronizer(case.pipeline(), group, timeout=TIMEOUT)
            else:
                if about == "shape" and odd:  # as many elements, otherwise arranged
                    grads[first] = grads[first].reshape(-1)
                if about == "size" and odd:
                    grads[first] = grads[first][1:]
                if about == "dtype" and odd:
                    grads[first] = grads[first].double()
                if about == "name" and odd:
                    grads = {f"other.{name}": grad for name, grad in grads.items()}
                if about == "order" and odd:
                    grads = dict(reversed(grads.items()))
                if about == "count" and odd:
                    del grads[first]
                sync.average_all(grads)
        except tw.ThinwireError as error:
            raised = f"{type(error).__name__}: {error}"
    sent = wire.hexdigest() != silence
    if sync is not None:
        later = digest(*sync.average_all(case.gradients(0, rank, size)).values())
    return raised, sent, later


def updates_of(group: Any, rank: int, size: int, case: Case) -> str:
    sync = open_sync(case, group)
    return digest(*sync.average_all(case.gradients(0, rank, size)).values())


def traffic(group: Any, rank: int, size: int, case: Case) -> list[tuple[int, int, int]]:
    """Bytes sent and received in each step by the communicator's count, and sent by `stats`."""
    sync = open_sync(case, group)
    report = []
    for step in range(case.steps):
        before = sync.comm.traffic.sent, sync.comm.traffic.received
        counted = sync.stats()["total"]["bytes_sent"]
        sync.average_all(case.gradients(step, rank, size))
        after = sync.comm.traffic.sent, sync.comm.traffic.received
        counted = sync.stats()["total"]["bytes_sent"] - counted
        report.append((after[0] - before[0], after[1] - before[1], counted))
    return report


def samples_of_rank_0(group: Any, rank: int, size: int, case: Case) -> Any:
    """`samples`, with the gradient of rank 0 on every rank."""
    return samples(group, 0, size, case)


def first_wire_by_seed(
    group: Any, rank: int, size: int, case: Case, seeds: tuple[int, ...]
) -> list[str]:
    """What the same gradient becomes on the wire under different seeds."""
    wires = []
    for seed in seeds:
        sync = tw.Synchronizer(case.pipeline(), group, seed=seed, timeout=TIMEOUT)
        with recorded() as wire:
            sync.average_all(case.gradients(0, rank, size))
        wires.append(wire.hexdigest())
    return wires


def leaves_the_global_generator_alone(group: Any, rank: int, size: int, case: Case) -> bool:
    before = torch.get_rng_state()
    updates_of(group, rank, size, case)
    return torch.equal(torch.get_rng_state(), before)


def passes_through(group: Any, rank: int, size: int, case: Case) -> bool:
    """Whether a rank alone gets back what it gave."""
    sync = open_sync(case, group)
    grads = case.gradients(0, rank, size)
    given = digest(*grads.values())
    return digest(*sync.average_all(grads).values()) == given
