"""One step of all gradients: begun with the first, finished when the last was added."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.engine.finite import largest_magnitudes, look_at, refuse, values_of
from thinwire.engine.given import form_of, no_gradient
from thinwire.errors import DisagreementError, ExchangeError, RecipeError
from thinwire.units.unit import Unit

if TYPE_CHECKING:
    from thinwire.engine.synchronizer import Synchronizer


class BackwardPass:
    """Runs units as soon as their gradients are complete, in the calling thread.

    Small tensors, and all tensors if the whole model is one unit, wait for the end of the step.

    Whatever ends it but a whole step, the state is then as it was before: the roster keeps a copy
    of what a step touches until it is over.

    A rank with NaN or Inf takes part with zeros, so that nobody waits for it; at the end the
    ranks agree whether any had one, and the step is undone on all.

    Where all units are plain sums the ranks need not meet: such a rank puts NaN into the first
    element of its sum, which every rank then finds in the result.

    `at_once`: all gradients come in one `add`. Then the ranks agree on them, and on NaN and Inf,
    before anything is sent, and all units wait for `finish`, to be overlapped with each other.

    `may_be_unused`: parameters that no rank used keep their state untouched, because DDP throws
    away what it gets for them; so does their memory, where a gradient may be left over from an
    earlier step. The ranks agree on them in a small exchange per bucket.
    """

    def __init__(
        self, synchronizer: "Synchronizer", *, at_once: bool = False, may_be_unused: bool = False
    ) -> None:
        self._sync, self._runner = synchronizer, synchronizer.runner
        self._at_once, self._may_be_unused = at_once, may_be_unused
        self._waiting: dict[str, Tensor] = {}
        self._seen: list[Tensor] = []
        self._bad: list[str] = []
        self._marks: list[Tensor] = []  # the first element of each plain sum
        self._all_plain = True
        self._unused: set[str] = set()
        self._left_over: list[tuple[Tensor, Tensor]] = []  # memory of gradients, and what was there
        self._averaged_rows: dict[str, Tensor] = {}
        self._failure: BaseException | None = None
        self._all_steady = not may_be_unused
        self._sent = False
        self._in_turn = RLock()  # whoever ends a step may not be the thread that makes it
        if synchronizer.running is not None:
            synchronizer.running.break_off("its backward pass broke off")
        synchronizer.roster.begin()
        synchronizer.running = self
        if not at_once:
            synchronizer.choosers.begin_step(("a backward pass",))

    def add(self, grads: Mapping[str, Tensor], used: Collection[str] = ()) -> None:
        """Gradients that are ready now, and which of them this rank used, where some may be unused.

        Errors wait for `finish`.
        """
        with self._in_turn:
            if self._failure is not None:
                return
            try:
                self._add(grads, used)
            except BaseException as error:
                self._failure = error

    def finish(self) -> dict[str, Tensor]:
        """End the step. Returns what takes the place of COO gradients, by name."""
        with self._in_turn:
            return self._finish()

    def break_off(self, why: str) -> None:
        """Take back what was done, and give up the group: others may be further on, or wait.

        Unless nothing was sent: then all ranks know. Another thread that exchanges for this step
        hears of the group first, and nothing is taken back while it still changes a state.
        """
        if self._sync.running is not self:
            return  # it was taken back before
        if self._sent:
            self._runner.give_up(why)
            self._sync.everyone.give_up(why)
        with self._in_turn:
            if self._sync.running is self:
                self._take_back(why)

    def _finish(self) -> dict[str, Tensor]:
        try:
            if self._failure is not None:
                raise self._failure
            self._run(self._waiting)
            self._runner.finish()
            bad_ranks = self._bad_ranks()
            if not bad_ranks:
                self._sync.truth.compare(self._sync.roster.units.values())
                self._sync.choosers.end_step()
        except BaseException as error:
            self.break_off(f"{type(error).__name__}: {error}")
            if self._sync.comm.lost:  # whatever came of it
                raise ExchangeError(self._sync.comm.lost) from error
            raise
        self._sync.running = None
        if bad_ranks:
            self._sync.truth.forget()
            self._sync.roster.undo()
            seen = [*self._seen, *self._averaged_rows.values()]
            refuse(self._sync.nonfinite, seen, self._bad, bad_ranks)
            self._sync.choosers.end_step()
        for memory, before in self._left_over:
            memory.copy_(before)
        return self._averaged_rows

    def _take_back(self, why: str) -> None:
        self._sync.running = None
        self._failure = self._failure or ExchangeError(f"the step was given up: {why}")
        self._runner.readback.forget()
        self._sync.truth.forget()
        try:
            self._runner.abandon()
        finally:
            self._sync.roster.undo()

    def _add(self, grads: Mapping[str, Tensor], used: Collection[str]) -> None:
        self._sync.refuse_closed()
        self._sync.roster.refuse_torn()
        self._sync.comm.refuse_if_given_up()
        if self._at_once:
            if not self._agreed(grads):
                return
            self._sent = True
        else:
            self._sent = True
            if self._may_be_unused:
                self._leave_out_unused(grads, used)
            self._inspect(grads)
        dense = {name: grad for name, grad in grads.items() if not grad.is_sparse}
        for name, grad in grads.items():
            if grad.is_sparse:
                self._all_plain = False
                unit = self._sync.roster.row_unit(name, grad)
                self._averaged_rows[name] = self._runner.average_rows(unit, grad)
        if self._at_once:
            self._sync.choosers.begin_step(tuple(dense))
        for recipe, names in self._sync.choosers.grouping.split(dense):
            waits = self._at_once or recipe.unit == "model"
            least = 0 if recipe.joins else recipe.bypass + 1  # elements of a tensor that goes now
            now = {n: dense[n] for n in names if not waits and dense[n].numel() >= least}
            self._waiting.update({n: dense[n] for n in names if n not in now})
            if now:
                self._run(now)

    def _agreed(self, grads: Mapping[str, Tensor]) -> bool:
        """Whether all ranks came with the same tensors, all finite; before anything is sent."""
        step_of = self._sync.roster.step_of
        form = "; ".join(f"{n}: {form_of(g)}, step {step_of(n)}" for n, g in grads.items())
        backend = self._sync.comm.backend
        refused = list(filter(None, (no_gradient(n, g, backend) for n, g in grads.items())))
        bad_here = [] if refused else list(self._unfit(grads).values())
        self._sent = True  # whoever is interrupted in here leaves the others waiting
        try:
            with self._counted(self._sync.comm) as comm:
                bad_ranks = comm.agree("the tensors", form, flag=bool(bad_here))
        except DisagreementError:
            self._sent = False  # all ranks know
            raise
        self._sent = False
        if refused:
            raise RecipeError(refused[0])
        self._sync.awaited.refuse_without(grads)  # on all ranks: they agree on the tensors
        if bad_ranks:
            refuse(self._sync.nonfinite, grads.values(), bad_here, bad_ranks)
        return not bad_ranks

    def _leave_out_unused(self, grads: Mapping[str, Tensor], used: Collection[str]) -> None:
        """What no rank used offers zeros."""
        with self._counted(self._sync.comm) as comm:
            votes = comm.all_gather_meta([int(name in used) for name in grads])
        named = zip(grads, zip(*votes, strict=True), strict=True)
        unused = {n: grads[n] for n, on in named if not any(on) and not grads[n].is_sparse}
        for grad, largest in zip(unused.values(), largest_magnitudes(unused), strict=True):
            if largest:
                self._left_over.append((grad, grad.clone()))
                grad.zero_()
        self._unused |= unused.keys()

    def _inspect(self, grads: Mapping[str, Tensor]) -> None:
        """Find NaN and Inf."""
        self._seen.extend(grad for grad in grads.values() if not grad.is_sparse)
        looked_at_later = self._all_steady and self._sync.is_steady(_device(grads))
        if looked_at_later:
            self._sync.headroom.lose_sight()
            return
        unfit = self._unfit(grads)
        for name in unfit:
            values_of(grads[name]).zero_()
        self._bad += unfit.values()

    def _unfit(self, grads: Mapping[str, Tensor]) -> dict[str, str]:
        """Gradients that may not enter the state, and what to say of each."""
        bad, largest = look_at(grads)
        large = self._sync.headroom.too_large(grads, largest)
        said = {n: f"{n} (with what waits too large for {grads[n].dtype})" for n in large}
        return dict(zip(bad, bad, strict=True)) | said

    def _run(self, grads: Mapping[str, Tensor]) -> None:
        units = self._sync.roster.units_for(grads, whole=not self._at_once)
        self._sync.truth.keep(units)
        if self._at_once:
            self._runner.run_overlapped(units)
            return
        for unit, parts in units:
            if self._all_steady and self._runner.is_steady(unit):
                self._runner.run(unit, parts)
                continue
            self._all_steady = False
            self._mark(unit, parts)
            with unit.frozen(self._unused):
                self._runner.run(unit, parts)

    def _mark(self, unit: Unit, parts: list[Tensor]) -> None:
        if not unit.pipeline.is_plain_sum:
            self._all_plain = False
            return
        part = next((part for part in parts if part.numel()), None)
        if part is not None:
            mark = part[(0,) * part.dim()]
            self._marks.append(mark)
            if self._bad:
                mark.fill_(torch.nan)

    def _bad_ranks(self) -> list[int]:
        if self._at_once:
            return []  # they agreed before the step
        found, self._runner.found_bad = self._runner.found_bad, False
        sharded = self._sync.everyone is not self._sync.comm  # others see nothing of these sums
        if found:
            self._bad += self._sync.roster.take_bad()
        elif not sharded and (self._all_steady or (self._all_plain and not self._any_marked())):
            return []
        steps = sum(unit.step for unit in self._sync.roster.units.values())
        says = "end" if sharded else f"{steps} steps of units"  # shards may have other units
        with self._counted(self._sync.everyone) as everyone:
            return everyone.agree("the step", says, flag=bool(self._bad))

    @contextmanager
    def _counted(self, comm: GroupCommunicator) -> Iterator[GroupCommunicator]:
        """What is sent inside is no tensor's: the ranks agree on something."""
        before = comm.traffic.now()
        yield comm
        moved = comm.traffic.since(before)
        self._sync.agreements.count(moved.sent, moved.received)

    def _any_marked(self) -> bool:
        return any(bool(mark.isnan()) for mark in self._marks)


def _device(grads: Mapping[str, Tensor]) -> torch.device:
    return next(iter(grads.values())).device
