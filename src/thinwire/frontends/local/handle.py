"""What `outer` gives back: the hook of an optimiser, statistics, checkpoints, the end."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet, ref

import torch
from torch import Tensor, nn

from thinwire.engine.checkpoint import accepted_by_all
from thinwire.engine.saved import Saved, content, pack, seal, unpack
from thinwire.engine.synchronizer import Synchronizer
from thinwire.engine.thread import OrderedWorker
from thinwire.errors import ClosedError
from thinwire.frontends.local.checkpoint import OUTER_VERSION, Here, Restored, restore
from thinwire.frontends.local.moments import MeanMoments
from thinwire.frontends.local.patience import Patience
from thinwire.frontends.local.recovery import begins_anew
from thinwire.frontends.local.scaler import ScalerSteps
from thinwire.frontends.local.setups import Setup
from thinwire.frontends.local.shared import Keep, SharedCopy
from thinwire.frontends.local.under_way import Means, Tensors, UnderWay
from thinwire.frontends.newcomers import Newcomers
from thinwire.frontends.torch_private import is_inner_step
from thinwire.units.unit import Unit


class Outer:
    """What `outer` gives back: statistics, checkpoints, an early end of a round, the end.

    `shared` is the copy that all ranks have, and its `optimizer` the outer one. `fragments` are the
    names of the parameters that meet together.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        optimizers: Sequence[torch.optim.Optimizer],
        setup: Setup,
        fragments: Sequence[tuple[str, ...]],
        synchronizer: Synchronizer,
        keep: Keep,
        newcomers: Newcomers,
        grad_scaler: "torch.amp.GradScaler | None" = None,
        moments: MeanMoments | None = None,
    ) -> None:
        self.setup, self.fragments, self.synchronizer = setup, list(fragments), synchronizer
        self.shared = SharedCopy(parameters, setup.outer, keep, self._waiting)
        self._parameters, self._keep, self._newcomers = parameters, keep, newcomers
        self._kind, self._moments = type(self.shared.optimizer).__name__, moments
        synchronizer.roster.expect(self.shared.parameters)
        defaults = self.shared.optimizer.defaults
        synchronizer.comm.agree("the outer optimiser", f"{self._kind} of {defaults}")
        self._steps, self._round, self._in_round = 0, 0, 0
        self._length = setup.length(0)
        self._under_way: list[UnderWay] = []
        self._worker = OrderedWorker()
        self._patience = Patience(synchronizer.runner.give_up)
        self._optimizers = WeakSet(optimizers)  # whose hooks hold this
        self._hook = optimizers[-1].register_step_post_hook(self._stepped)
        self._counting = partial(self._counts_if_left_out, ref(optimizers[-1]))
        self._scaler = None if grad_scaler is None else ScalerSteps.of(grad_scaler)
        if self._scaler is not None:
            self._scaler.begin(self._counting)

    @torch.inference_mode(False)  # what is made in it could not be stepped later
    def synchronize(self) -> None:
        """End the round now, on all ranks: what is under way arrives, then all fragments meet.

        For the end of training, or before the model is looked at. Where no rank has moved since
        the last time nothing changes.
        """
        self._refuse_closed()
        self._apply_until(None, self.setup.blend, self.setup.own)
        for number in range(len(self.fragments)):
            self._send(number, delay=0)
        self._apply_until(None, blend=None, own=0.0)
        self._next_round()

    def stats(self) -> dict[str, Any]:
        """As of `Synchronizer.stats`, and under `local` how many rounds and steps there were."""
        self._wait()
        local = {"rounds": self._round, "steps": self._steps, "every": self._length}
        with self._keep.waiting(self._units):
            return self.synchronizer.stats() | {"local": local}

    @torch.inference_mode(False)
    def state_dict(self, gather: bool = False) -> dict[str, Any]:
        """What this rank must remember, also in the middle of a round.

        It differs by rank, and so do the model and its optimiser there: save all three on each.
        `gather`: what all ranks must, on every rank; all must call. For another number of ranks.
        """
        self._wait()
        with self._keep.waiting(self._units):
            exchange = self.synchronizer.state_dict()
        mine = seal(
            {
                "version": OUTER_VERSION,
                "fragments": len(self.fragments),
                "kind": self._kind,
                "exchange": exchange,
                "steps": self._steps,
                "round": self._round,
                "in_round": self._in_round,
                "shared": {n: p.detach().clone() for n, p in self.shared.parameters.items()},
                "outer": self.shared.state(),
                "own": dict(self.shared.own),
                "rates": [] if self._moments is None else self._moments.state(),
                "beside": {name: content(p) for name, p in self._parameters.items()},
                "under_way": [one.saved() for one in self._under_way],
            }
        )
        if not gather:
            return mine
        everyones = self.synchronizer.comm.gather(pack(mine))
        return {"version": OUTER_VERSION, "ranks": list(map(unpack, everyones))}

    @torch.inference_mode(False)
    def load_state_dict(self, state: Saved, *, lost: Collection[int] = ()) -> None:
        """Go on from a saved state, after the model and its optimiser were loaded, after `outer`.

        Every rank must call; what is refused on one is refused on all. At another number of ranks
        pass the list of all ranks' states, or a gathered one: a new round then begins, on all of
        them from where the others last met. So it is where ranks are `lost` with their states: the
        list of the others' is enough, and what waited on the lost ones is lost too.
        """
        self._refuse_closed()
        self._wait()
        comm = self.synchronizer.comm
        groups = 0 if self._moments is None else len(self._moments.state())
        here = Here(self.setup, self.fragments, self._parameters, self.shared, groups)
        restored = accepted_by_all(comm, partial(restore, state, comm, here, lost))
        self.synchronizer.load_state_dict(restored.exchange, lost=lost)  # last to refuse
        self._go_on(restored)

    def _go_on(self, restored: Restored) -> None:
        first, own = restored.first, restored.own
        self.shared.load(first["shared"], first["outer"])
        self._steps, self._round = first["steps"], first["round"]
        self._length = restored.length
        self._in_round, self._under_way = 0, []
        if own is None:
            for one in first["under_way"]:  # all had it, and it waits in no residual any more
                self._step(Means.of(self._on_device(one["means"])))
            self.shared.apply(self._parameters, {}, None)
        else:
            self.shared.own = dict(own["own"])
            self._in_round = own["in_round"]
            self._under_way = [UnderWay.arrived(one, self._on_device) for one in own["under_way"]]
        if self._moments is not None:
            self._moments.load([] if own is None else own["rates"])

    def close(self) -> None:
        """Let go of the optimiser, the worker and the process groups, on all ranks.

        What is under way arrives, and is not applied; `synchronize` first to end with one model.
        """
        self._hook.remove()
        if self._moments is not None:
            self._moments.close()
        if self._scaler is not None:
            self._scaler.end(self._counting)
        self._patience.end()
        self._worker.close()
        self.synchronizer.close()

    def _refuse_closed(self) -> None:
        if self.synchronizer.closed:
            raise ClosedError("this handle was closed: call thinwire.outer again to go on")

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Called by the optimiser."""
        if not is_inner_step(optimizer):
            self._after_step()

    def _after_step(self) -> None:
        """One local step was made."""
        self._newcomers.refuse()
        self._steps += 1
        self._in_round += 1
        distance = self._length // len(self.fragments)
        if self._in_round % distance == 0:
            self._send(self._in_round // distance - 1, self.setup.delay)
        if self._in_round == self._length:
            self._next_round()  # also where the exchange breaks off: the next one sends it all
        self._apply_until(self._steps, self.setup.blend, self.setup.own)

    @contextmanager
    def _counts_if_left_out(
        self, counted: Callable[[], object], optimizer: torch.optim.Optimizer
    ) -> Iterator[None]:
        """A scaler leaves a step out by its own rank alone, which would then be behind."""
        before = self._steps
        yield
        if optimizer is counted() and self._steps == before:
            self._after_step()

    def _next_round(self) -> None:
        self._round += 1
        self._in_round, self._length = 0, self.setup.length(self._round)

    def _send(self, number: int, delay: int) -> None:
        """Let a fragment travel; the worker takes one after the other, alike on all ranks."""
        if any(one.fragment == number for one in self._under_way):  # rounds were longer at the save
            self._apply_until(None, self.setup.blend, self.setup.own)
        names = self.fragments[number]
        moved = self.shared.moved(names)
        stays = delay and self.setup.blend is None
        sent = self.shared.draw_back(names, self.setup.hold) if stays else {}
        brings = self._moments is not None and self.setup.sends_whole
        kept = {name: way.clone() for name, way in moved.items()} if brings else {}
        when = f"fragment {number} of round {self._round}, after {self._in_round} steps"
        device = next(iter(moved.values())).device
        means = self._worker.submit(device, self._exchange, moved, when)
        due = self._steps + delay
        self._under_way.append(UnderWay(number, self._length, self._steps, due, sent, kept, means))

    def _exchange(self, moved: Tensors, when: str) -> Means:
        self.synchronizer.comm.agree("the round", when)
        with self._keep.waiting(partial(self._units, moved)):
            return Means.of(self.synchronizer.average_all(moved))

    def _apply_until(self, step: int | None, blend: float | None, own: float) -> None:
        """Apply what is due, in the order in which it was sent; None: all of it."""
        while self._under_way and (step is None or self._under_way[0].due <= step):
            one = self._under_way[0]
            with self._patience.waiting():  # who is interrupted here still has it
                broke_off = one.means.exception() is not None
            self._under_way.pop(0)
            if broke_off:
                self.shared.take_up(one.sent, self.setup.hold)
            means = one.means.result()
            self._worker.join_streams()
            self._step(means)
            names = self.fragments[one.fragment]
            if not means.moved and self._begins_anew(names):
                self.shared.apply(names, {}, None, own)
            else:
                self.shared.apply(names, one.sent, blend, own)
            if self._moments is not None and one.moved and means.moved:
                since = self._steps - one.made
                self._moments.bring(one.moved, means.by_name, one.every, since)

    def _begins_anew(self, names: Collection[str]) -> bool:
        skips = self.synchronizer.nonfinite == "skip"
        return skips and begins_anew(names, self._parameters, self._optimizers)

    def _step(self, means: Means) -> None:
        if means.moved:
            self.shared.step(means.by_name)

    def _waiting(self, name: str) -> Tensor | None:
        """What was not sent yet of a parameter, flat; None where nothing is kept of it."""
        return self.synchronizer.roster.kept_of(name).get("feedback/residual")

    def _units(self, names: Mapping[str, Tensor] | None = None) -> list[Unit]:
        """The synchroniser's, of these tensors or of all."""
        units = self.synchronizer.roster.units.values()
        return [unit for unit in units if names is None or not names.keys().isdisjoint(unit.names)]

    def _wait(self) -> None:
        """Until nothing is on the network; what is due later is still applied then.

        What broke off is told once, and sent anew in its next round.
        """
        with self._patience.waiting():
            broken = [one for one in self._under_way if one.means.exception() is not None]
        self._under_way = [one for one in self._under_way if one.means.exception() is None]
        self._worker.join_streams()
        for one in broken:
            self.shared.take_up(one.sent, self.setup.hold)
        for one in broken:
            one.means.result()  # raises

    def _on_device(self, saved: Mapping[str, Tensor]) -> Tensors:
        return {name: value.to(self._parameters[name].device) for name, value in saved.items()}
