"""Gradients averaged over the ranks, by a recipe: the engine's front."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire import cookbook
from thinwire.auto.by_step import Choosers
from thinwire.auto.explain import explain
from thinwire.comm import GroupCommunicator, Nodes, Traffic, check_initialized, node_size_of
from thinwire.engine import regroup
from thinwire.engine.audit import Audit
from thinwire.engine.awaited import Awaited
from thinwire.engine.backward import BackwardPass
from thinwire.engine.checkpoint import Restored, accepted_by_all, restore
from thinwire.engine.finite import NonFinite
from thinwire.engine.fits import Reader
from thinwire.engine.given import check_named, on_host, without_graph
from thinwire.engine.headroom import Headroom
from thinwire.engine.roster import Roster
from thinwire.engine.saved import STATE_VERSION, Saved, pack, seal, unpack
from thinwire.engine.step import StepRunner
from thinwire.engine.truth import Truth
from thinwire.errors import ClosedError, RecipeError
from thinwire.pipeline import Pipeline
from thinwire.settings import check_choice
from thinwire.version import VERSION


class Synchronizer:
    """Averages gradients over the ranks of a group, by a recipe.

    All ranks must make the same calls in the same order with the same names and shapes;
    otherwise every rank raises `DisagreementError` before anything is sent.

    `nonfinite` says what NaN or Inf in any rank's gradient does to the step, on all ranks alike
    and with the state left as it was: "raise" `NonFiniteError`; "skip": the update is zero;
    "propagate": the update is NaN, for a `GradScaler` to see.

    `node_size` ranks share a node (`"auto"`: as many as torchrun started there): gradients are
    summed inside each node and the recipe runs between the nodes.

    `timeout` bounds every wait for a peer; by default it is that of `group`.

    Every `truth`-th step also adds up the gradients themselves, and `stats()` tells how near the
    update came: its cosine with the dense mean, and the relative error. 0 never does.

    Every `audit`-th step the ranks compare checksums of their updates (with DDP: of the
    parameters), and all raise `DisagreementError` if one has come apart. 0 never does.

    `undo`: the state that a step touches is copied first, so that one that breaks off is taken
    back. Without, that memory and pass are saved, unless `nonfinite` needs them; after a step that
    broke off in the middle only a checkpoint can be gone on from, and all else is refused.

    `replay`: on GPUs a step that is like the one before is launched as a few graphs, the same bits
    with less work for the host.

    Every synchronizer has process groups of its own, unless it shares a communicator (`comm`) that
    the caller made, and closes: their steps must not overlap then.

    `mesh`: all ranks that train one model, where `group` has only those with the same shard of it;
    NaN or Inf on any of them then counts for all. It is closed with the synchronizer.
    """

    def __init__(
        self,
        recipe: "Pipeline | str | Mapping[str, Any]",
        group: dist.ProcessGroup | None = None,
        seed: int = 0,
        *,
        nonfinite: NonFinite = "raise",
        node_size: int | Literal["auto"] = 1,
        timeout: timedelta | None = None,
        comm: GroupCommunicator | None = None,
        truth: int = 0,
        audit: int = 0,
        mesh: GroupCommunicator | None = None,
        undo: bool = True,
        replay: bool = True,
    ) -> None:
        check_choice("nonfinite", nonfinite, get_args(NonFinite))
        if not isinstance(timeout, timedelta | None):
            raise RecipeError(f"{timeout=} must be a timedelta, as datetime.timedelta(seconds=60)")
        self.pipeline = cookbook.recipe(recipe)
        self.nonfinite = nonfinite
        ranks_per_node = node_size_of(node_size)
        if comm is not None and (group is not None or timeout is not None or ranks_per_node != 1):
            raise RecipeError(
                "comm= brings its own group and timeout, and has no nodes: leave out group=, "
                "timeout= and node_size="
            )
        self.closed = False
        self._owns_comm = comm is None
        if comm is None:
            check_initialized()
            comm = GroupCommunicator(group, timeout)
        self.node_size = ranks_per_node
        self.scale = 0.0  # of the loss, which what waits is in; 0: nobody said
        self.buckets: list[list[str]] = []  # as gradients came together in the last backward pass
        settings = f"{self.pipeline!r}, seed={seed}, node_size={ranks_per_node}, {nonfinite=}"
        self._settings = settings + f", {truth=}, {audit=}, thinwire {VERSION}"
        self._seed, self._remembers = seed, undo or nonfinite != "raise"
        self._every, self._replay = (truth, audit), replay
        self.awaited = Awaited()
        self.after_step: list[Callable[[], None]] = []  # told of every step that is over
        (mesh or comm).agree("the recipe or the seed", self._settings)
        self._settle_in(comm, mesh, (group, timeout))

    def _settle_in(
        self,
        comm: GroupCommunicator,
        mesh: GroupCommunicator | None = None,
        of_nodes: tuple[dist.ProcessGroup | None, timedelta | None] = (None, None),
    ) -> None:
        """All that knows the group, and nothing of any step yet."""
        self.comm, self.everyone = comm, mesh or comm
        flat = self.node_size == 1 or comm.size == 1
        group, timeout = of_nodes
        nodes = None if flat else Nodes(group, self.node_size, timeout, comm.traffic)
        truth, audit = self._every
        self.truth, self.audit = Truth(comm, truth), Audit(comm, audit)
        self.runner = StepRunner(comm, nodes, self._seed, self._replay)
        self.choosers = Choosers(self.pipeline, comm, nodes)
        self.roster = Roster(self.pipeline, self.choosers, self.runner.keeps_state, self._remembers)
        self.headroom = Headroom(self.roster, comm.size)
        self.running: BackwardPass | None = None  # the step that is not over yet
        self.agreements = Traffic()  # what steps send beside the tensors

    def is_steady(self, device: torch.device) -> bool:
        """Whether steps on this device ask the host nothing until they are over."""
        return self.runner.nodes is None and self.choosers.is_steady(device)

    def average(self, name: str, grad: Tensor) -> Tensor:
        """The mean of `grad` over the ranks, by the recipe; see `average_all`."""
        return self.average_all({name: grad})[name]

    @on_host
    def average_all(self, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Average many gradients; selection of one runs beside the exchange of another.

        Each update is written into its gradient's own storage and returned. Sparse (COO)
        gradients come back as new COO tensors, averaged whole.
        """
        self.refuse_closed()
        check_named(grads)
        step = BackwardPass(self, at_once=True)
        step.add(without_graph(grads))
        updates = dict(grads) | step.finish()
        self.awaited.came(grads)
        if self.audit.is_due():
            self.audit.compare("the ranks' updates", updates)
        self.tell()
        return updates

    def refuse_closed(self) -> None:
        """Raise, if `close` ended all exchanges."""
        if self.closed:
            raise ClosedError("this Synchronizer was closed: make a new Synchronizer to go on")

    def end_step(self, why: str = "a state is loaded in the middle of a step") -> None:
        """Let end what is queued, and take back a backward pass that broke off."""
        self.runner.worker.drain()
        if self.running is not None:
            self.running.break_off(why)

    def tell(self) -> None:
        """Let those who watch look at the step that is over: whole, also where they fail."""
        for look in tuple(self.after_step):
            look()

    def follow_scale(self, scale: float) -> None:
        """Follow a change of the loss scale: what waits is in the old scale's units."""
        if self.scale and scale != self.scale:
            self.end_step("the loss scale changed in the middle of a step")
            self.roster.scale_state(scale / self.scale)
            self.headroom.lose_sight()
        self.scale = scale

    @on_host
    def stats(self) -> dict[str, Any]:
        """Costs on this rank so far: `total`, and `tensors` by name.

        Each has steps, numel, k and density (means per step), bytes sent and received, the bytes
        that dense allreduce would have sent, and seconds by phase. `agreement` has the bytes in
        which ranks agreed on steps and on unused parameters, which are no tensor's. `truth` is the
        last comparison with a dense mean, where there was one. `series` has what pieces told step
        by step.
        """
        truth = self.truth.row(self.roster.units.values())
        moved = self.agreements
        more = {
            "agreement": {"bytes_sent": moved.sent, "bytes_received": moved.received},
            "truth": truth,
            "series": self.runner.series.rows(),
        }
        return self.roster.stats() | {key: value for key, value in more.items() if value}

    def explain(self) -> str:
        """What was chosen for each unit and why, with the numbers it was decided from."""
        units, rows = self.roster.units.values(), self.roster.rows.values()
        truth = self.truth.row(units)
        return explain(self.pipeline, units, rows, self.choosers, truth)

    @on_host
    def state_dict(self, gather: bool = False) -> dict[str, Any]:
        """All this rank must remember: numbers, strings and tensors, by parameter name.

        After an error, or in the middle of a backward pass that broke off, it is that before the
        step. `gather`: what all ranks must, in one dict on every rank; then every rank must call.
        """
        self.end_step("its state was asked for in the middle of a step")
        self.runner.worker.join_streams()
        mine = seal(
            {
                "version": STATE_VERSION,
                "recipe": repr(self.pipeline),
                "seed": self.runner.seed,
                "world": self.comm.size,
                "rank": self.comm.rank,
                "node_size": self.node_size,
                "scale": self.scale,
                "choice": self.choosers.choice(self.roster.units),  # of `auto`, by tensor
                "forms": dict(self.roster.forms),
                "buckets": [list(names) for names in self.buckets],
                "tensors": self.roster.dissolved(),
            }
        )
        if not gather:
            return mine
        return {"version": STATE_VERSION, "ranks": list(map(unpack, self.comm.gather(pack(mine))))}

    @on_host
    def load_state_dict(
        self, state: Saved, *, recipe_changed: bool = False, lost: Collection[int] = ()
    ) -> None:
        """Go on from a saved state: this rank's own, or all ranks', at the same P or another.

        Every rank must call. What is refused on one rank is refused on all, and leaves each as it
        was. Where no front end knows the model, a state of other tensors is told of in the first
        step that is complete without one of which something waits. `recipe_changed` lets the state
        be of another recipe that keeps the same of what waits. `lost` are ranks whose states are
        gone: the list of the others' then is enough, and what waited on these is lost. A backward
        pass that broke off is taken back first, as by `state_dict`.
        """
        self.end_step()
        comm, known = self.comm, (self.roster.forms, self.roster.knows_all)
        reader = Reader(self.pipeline, self._seed, comm.rank, comm.size, self.node_size, *known)
        read = partial(restore, state, reader, recipe_changed, lost)
        restored = accepted_by_all(self.comm, read, self.everyone)
        if not self.roster.knows_all:
            self.awaited.load(restored.tensors, self.comm)
        self._go_on_from(restored)
        if self.runner.nodes is not None:
            self.roster.share_waits(self.comm)

    def _go_on_from(self, restored: Restored) -> None:
        self.scale, self.buckets = restored.scale, restored.buckets
        self.choosers.load(restored.choice)
        self.roster.restart(restored.tensors, restored.forms)
        self.headroom.lose_sight()

    def take_back(self) -> None:
        """Undo the last step, where the optimiser did not take it after all: on all ranks alike.

        A step that raised or was skipped is undone already; then, and before the first, nothing is.
        """
        self.end_step("it was taken back")
        self.roster.undo_last()
        self.headroom.lose_sight()

    def shared_state(self) -> dict[str, Any]:
        """What ranks have in common, for one that joins: all of the state but what waits here."""
        return regroup.shared_part(self.state_dict())

    @on_host
    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Begin with what other ranks share, before `reconfigure`; nothing of its own waits."""
        self.end_step()
        self._go_on_from(restore(regroup.joining(state), Reader(self.pipeline, self._seed)))

    @on_host
    def reconfigure(self, comm: GroupCommunicator) -> None:
        """Go on in another group, between two steps; every rank of it must call.

        What waits on this rank stays; what waited on ranks that are gone is lost. All must be at
        the same step: who joins has loaded the others' `shared_state`. The group before may be
        broken. `comm` is the caller's, as in `Synchronizer(comm=...)`. Where the new group breaks
        off, or its ranks disagree, nothing has changed.
        """
        if self.node_size != 1 or self.everyone is not self.comm:
            raise RecipeError("a Synchronizer with nodes or a mesh cannot change its group")
        mine, knows_all = regroup.alone(self.state_dict()), self.roster.knows_all
        restored = restore(mine, Reader(self.pipeline, self._seed))
        comm.agree("the recipe or the seed", self._settings)
        comm.agree("what ranks share", regroup.in_words(mine))
        regroup.renew_means(restored.tensors, comm)
        self.close()  # from here on nobody is waited for
        self.closed, self._owns_comm = False, False
        self._settle_in(comm)
        self.roster.knows_all = knows_all
        self._go_on_from(restored)

    def close(self) -> None:
        """End the worker and let go of the process groups that are its own, at any time.

        In the middle of a step, also another thread's, that is given up: nobody waits for it.
        """
        self.closed = True
        if self.running is not None:
            self.running.break_off("it was closed")
        self.runner.close()
        if self.everyone is not self.comm:
            self.everyone.close()
        if self._owns_comm:
            self.comm.close()
