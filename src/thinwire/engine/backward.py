"""One backward pass: gradients arrive as they are ready, the step ends when the last is in."""

from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor

from thinwire.engine.synchronizer import Synchronizer, largest_magnitudes, non_finite
from thinwire.errors import ExchangeError
from thinwire.units.unit import Unit


class BackwardPass:
    """Runs units as soon as their gradients are complete, in the worker's thread.

    Small tensors, and all tensors if the whole model is one unit, wait for the end of the step.

    A rank with NaN or Inf takes part with zeros, so that nobody waits for it; at the end the
    ranks agree whether any had one, and the step is undone on all. To undo it, "skip" and
    "propagate" copy each unit's state before they touch it. "raise" does not pay for that:
    nothing non-finite enters the state, but what the other tensors sent in that step is lost
    with it, so go on from a checkpoint.

    Where all units are plain sums the ranks need not meet: such a rank puts NaN into the first
    element of its sum, which every rank then finds in the result.

    `may_be_unused`: parameters whose gradient is zero on every rank keep their state untouched,
    because DDP throws away what it gets for a parameter that no rank used. The ranks agree on
    them in a small exchange per bucket.
    """

    def __init__(self, synchronizer: Synchronizer, *, may_be_unused: bool) -> None:
        self._sync = synchronizer
        self._may_be_unused = may_be_unused
        self._waiting: dict[str, Tensor] = {}
        self._seen: list[Tensor] = []
        self._bad: list[str] = []
        self._touched: list[Unit] = []
        self._marks: list[Tensor] = []  # the first element of each plain sum
        self._all_plain = True
        self._unused: set[str] = set()
        self._replaced: dict[int, Tensor] = {}
        self._failure: Exception | None = None
        synchronizer.choosers.begin_step(("a backward pass",))

    def add(self, grads: Mapping[str, Tensor]) -> None:
        """Gradients that are ready now. Errors wait for `finish`."""
        if self._failure is not None:
            return
        try:
            self._add(grads)
        except Exception as error:
            self._failure = error

    def finish(self) -> dict[int, Tensor]:
        """End the step. Returns what takes the place of sparse gradients, by their id."""
        if self._failure is not None:
            with suppress(ExchangeError):
                self._sync.runner.finish()  # nothing may stay under way
            raise self._failure
        self._run(self._waiting)
        self._sync.runner.finish()
        if bad_ranks := self._bad_ranks():
            if self._sync.nonfinite != "raise":
                for unit in self._touched:
                    unit.undo()
            self._sync.refuse([*self._seen, *self._replaced.values()], self._bad, bad_ranks)
        self._sync.choosers.end_step()
        return self._replaced

    def _bad_ranks(self) -> list[int]:
        if self._all_plain and not any(bool(mark.isnan()) for mark in self._marks):
            return []
        return self._sync.comm.agree("the step", "end", flag=bool(self._bad))

    def _add(self, grads: Mapping[str, Tensor]) -> None:
        self._inspect(grads)
        dense = {name: grad for name, grad in grads.items() if not grad.is_sparse}
        for name in grads.keys() - dense.keys():
            self._all_plain = False
            self._replaced[id(grads[name])] = self._sync.average_rows(name, grads[name])
        if self._sync.pipeline.unit == "model":
            self._waiting.update(dense)
            return
        small = {n: g for n, g in dense.items() if g.numel() <= self._sync.pipeline.bypass}
        self._waiting.update(small)
        self._run({n: g for n, g in dense.items() if n not in small})

    def _inspect(self, grads: Mapping[str, Tensor]) -> None:
        """Find unused parameters, NaN and Inf."""
        self._seen.extend(grad for grad in grads.values() if not grad.is_sparse)
        if self._may_be_unused:
            votes = self._sync.comm.all_gather_meta(
                [int(magnitude != 0) for magnitude in largest_magnitudes(grads)]
            )
            used = [any(column) for column in zip(*votes, strict=True)]
            self._unused |= {name for name, on in zip(grads, used, strict=True) if not on}
        bad = non_finite(grads)
        for grad in (grads[name] for name in bad):
            (grad._values() if grad.is_sparse else grad).zero_()
        self._bad += bad

    def _run(self, grads: Mapping[str, Tensor]) -> None:
        for unit, parts in self._sync.units_for(grads):
            if self._sync.nonfinite != "raise":
                unit.remember()
                self._touched.append(unit)
            self._mark(unit, parts)
            with unit.frozen(self._unused):
                self._sync.runner.run_here(unit, parts)

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
