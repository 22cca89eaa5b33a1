"""Many tensors over many steps: units, state, statistics, checkpoints."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.auto import dense_pipeline
from thinwire.auto.by_step import Choosers
from thinwire.auto.explain import explain
from thinwire.comm import GroupCommunicator, Nodes, node_size_of
from thinwire.cookbook import resolve
from thinwire.engine.step import Runner
from thinwire.errors import NonFiniteError, RecipeError
from thinwire.kernels.max_abs import max_abs
from thinwire.pipeline import Pipeline
from thinwire.units.rows import RowUnit
from thinwire.units.stats import Cost, Meter, total_cost
from thinwire.units.unit import SavedState, Unit, in_a_row

NonFinite = Literal["raise", "skip", "propagate"]
STATE_VERSION = 1
BUCKET_BYTES = 25 * 2**20  # DDP's own bucket size


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
    ) -> None:
        if nonfinite not in get_args(NonFinite):
            raise RecipeError(
                f"nonfinite={nonfinite!r} must be one of {', '.join(get_args(NonFinite))}"
            )
        self.pipeline = resolve(recipe)
        self.nonfinite = nonfinite
        self.comm = GroupCommunicator(group, timeout)
        self._units: dict[tuple[str, ...], Unit] = {}
        self._sparse: dict[str, RowUnit] = {}
        self._saved: dict[str, SavedState] = {}  # of tensors that are in no unit now
        self._past: dict[str, Cost] = {}  # of tensors while they were in other units
        ranks_a_node = node_size_of(node_size)
        settings = f"{self.pipeline!r}, seed={seed}, node_size={ranks_a_node}, {nonfinite=}"
        self.comm.agree("the recipe or the seed", settings)
        flat = ranks_a_node == 1 or self.comm.size == 1
        nodes = None if flat else Nodes(group, ranks_a_node, timeout, self.comm.traffic)
        self.runner = Runner(self.comm, nodes, seed)
        self.choosers = Choosers(self.pipeline, self.comm, nodes)

    def average(self, name: str, grad: Tensor) -> Tensor:
        """The mean of `grad` over the ranks, by the recipe; see `average_all`."""
        return self.average_all({name: grad})[name]

    def average_all(self, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Average many gradients; selection of one runs beside the exchange of another.

        Each update is written into its gradient's own storage and returned. Sparse (COO)
        gradients come back as new COO tensors, averaged whole: see `average_rows`.
        """
        form = "; ".join(f"{n}: {tuple(g.shape)} {g.dtype} {g.layout}" for n, g in grads.items())
        bad_here = non_finite(grads)
        bad_ranks = self.comm.agree("the tensors", form, flag=bool(bad_here))
        for name, grad in grads.items():
            if not grad.is_floating_point():
                raise RecipeError(f"{name!r} is {grad.dtype}; gradients must be floating point")
        if bad_ranks:
            self.refuse(grads.values(), bad_here, bad_ranks)
            return dict(grads)
        sparse = {n: self.average_rows(n, g) for n, g in grads.items() if g.is_sparse}
        dense = {n: g for n, g in grads.items() if not g.is_sparse}
        self.choosers.begin_step(tuple(dense))
        self.runner.run(self.units_for(dense))
        self.choosers.end_step()
        return {n: sparse.get(n, g) for n, g in grads.items()}

    def units_for(self, grads: Mapping[str, Tensor]) -> list[tuple[Unit, list[Tensor]]]:
        """The units of these gradients, large ones first, then the small ones fused."""
        small = {n: g for n, g in grads.items() if g.numel() <= self.pipeline.bypass}
        large = {n: g for n, g in grads.items() if n not in small}
        units = []
        for group in _grouped(large, self.pipeline.unit):
            unit = self._unit(group)
            self.choosers.assign(unit)
            units.append((unit, list(group.values())))
        fused = _grouped(small, "model")
        past = dense_pipeline(self.pipeline.feedback)
        return units + [(self._unit(group, past), list(group.values())) for group in fused]

    def average_rows(self, name: str, grad: Tensor) -> Tensor:
        """The mean of a COO gradient, as COO, by the recipe's `coo` or its own collective.

        Nothing is selected, pruned or rounded, except that a sketch stays one.
        """
        if name not in self._sparse:
            step = int(self._saved.get(name, {}).get("step", 0))
            meter = Meter((grad.shape.numel(),), grad.device)
            self._sparse[name] = RowUnit(name, self.pipeline, meter, step)
        unit, runner = self._sparse[name], self.runner
        return unit.average(grad, self.comm, runner.seed, runner.nodes)

    def refuse(self, grads: Iterable[Tensor], bad_here: list[str], bad_ranks: list[int]) -> None:
        """What a step with NaN or Inf comes to. The state is as it was before the step."""
        if self.nonfinite == "raise":
            where = f"here in {', '.join(bad_here)}" if bad_here else "not on this rank"
            raise NonFiniteError(
                f"NaN or Inf in the gradients of rank {', '.join(map(str, bad_ranks))} ({where}); "
                'nonfinite="skip" would leave the step out, nonfinite="propagate" would hand NaN '
                "to a GradScaler"
            )
        for grad in grads:
            (grad._values() if grad.is_sparse else grad).fill_(
                0.0 if self.nonfinite == "skip" else torch.nan
            )

    def scale_state(self, factor: float) -> None:
        """Follow a change of the loss scale: what waits is in the old scale's units."""
        for unit in self._units.values():
            for piece in ("feedback", "sparsifier"):
                for value in unit.state[piece].values():
                    if value.is_floating_point():
                        value.mul_(factor)

    def stats(self) -> dict[str, Any]:
        """Costs on this rank so far: `total`, and `tensors` by name.

        Each has steps, numel, k and density (means a step), bytes sent and received, the bytes
        that dense allreduce would have sent, and seconds by phase.
        """
        costs = dict(self._past)
        for unit in self._units.values():
            costs |= {n: self._past.get(n, Cost()) + c for n, c in unit.costs().items()}
        costs |= {name: unit.cost() for name, unit in self._sparse.items()}
        rows = {name: cost.row() for name, cost in costs.items()}
        for unit in self._units.values():
            if "xi" in unit.state["collective"]:
                xi = float(unit.state["collective"]["xi"])
                rows |= {name: rows[name] | {"xi": xi} for name in unit.names}
        return {"total": total_cost(costs.values()).row(), "tensors": rows}

    def explain(self) -> str:
        """Which way each unit goes and why, with the numbers it was decided from."""
        units, rows = self._units.values(), self._sparse.values()
        return explain(self.pipeline, units, rows, self.choosers)

    def state_dict(self) -> dict[str, Any]:
        """All this rank must remember: numbers, strings and tensors, by parameter name."""
        self.runner.worker.join_streams()
        tensors = {n: dict(s) for n, s in self._saved.items()}
        for unit in self._units.values():
            tensors.update(unit.dissolve())
        for name, sparse in self._sparse.items():
            tensors[name] = tensors.get(name, {}) | {"step": torch.tensor(sparse.step)}
        choice = self.choosers.choice(unit.names for unit in self._units.values())
        return {
            "version": STATE_VERSION,
            "recipe": repr(self.pipeline),
            "seed": self.runner.seed,
            "world": self.comm.size,
            "rank": self.comm.rank,
            "choice": choice,  # of `auto`, by tensor
            "tensors": tensors,
        }

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Go on from a saved state: this rank's own, or, at another P, the list of all ranks'."""
        if isinstance(state, Mapping):
            if state["world"] != self.comm.size:
                raise RecipeError(
                    f"the state was saved by {state['world']} ranks and this group has "
                    f"{self.comm.size}: pass the list of all ranks' states"
                )
            states: Sequence[Mapping[str, Any]] = [state]
            mine = states
        else:
            states = state
            ranks, world = sorted(s["rank"] for s in states), states[0]["world"] if states else 0
            if not states or ranks != list(range(world)):
                raise RecipeError(
                    f"the list has the states of ranks {ranks}, and {world} ranks saved one: all "
                    "are needed, or what waits on the others is lost"
                )
            # Each old rank's residual goes to one new rank, so their sum stays what it was.
            mine = [s for s in states if s["rank"] % self.comm.size == self.comm.rank]
        for one in states:
            if one["version"] != STATE_VERSION:
                raise RecipeError(f"state version {one['version']}, expected {STATE_VERSION}")
        self.runner.seed = states[0]["seed"]
        self.choosers.load(states[0].get("choice", {}))
        self._units.clear()
        self._sparse.clear()
        self._saved = merge_states(states[0], mine, self.comm.size)

    def close(self) -> None:
        """End the worker and let go of the process groups."""
        self.runner.close()

    def _unit(self, grads: Mapping[str, Tensor], pipeline: Pipeline | None = None) -> Unit:
        key = tuple(grads)
        unit = self._units.get(key)
        first = next(iter(grads.values()))
        form = (tuple(g.numel() for g in grads.values()), first.dtype, first.device)
        if unit is not None and (unit.sizes, unit.spec.dtype, unit.spec.device) == form:
            return unit
        for old in [k for k in self._units if not set(k).isdisjoint(key)]:
            dissolved = self._units.pop(old)
            self._saved |= dissolved.dissolve()
            self._past |= {n: self._past.get(n, Cost()) + c for n, c in dissolved.costs().items()}
        pipeline = pipeline or self.choosers.first_pipeline(key, self._saved)
        unit = Unit.assemble(grads, pipeline, self._saved, self.runner.keeps_state)
        for name in key:
            self._saved.pop(name, None)
        self._units[key] = unit
        return unit


def merge_states(
    template: Mapping[str, Any], states: Sequence[Mapping[str, Any]], size: int
) -> dict[str, SavedState]:
    """One rank's state out of several old ranks': per element it is their sum, zero of none.

    What belongs to the unit or, as keys that begin with "mean_", is the same on every rank, is
    taken as it is; a mean over P ranks becomes one over the new number.
    """
    merged: dict[str, SavedState] = {}
    for name, first in template["tensors"].items():
        merged[name] = {}
        for key, value in first.items():
            if key.startswith("feedback/mean_"):
                merged[name][key] = value * (template["world"] / size)
            elif key.startswith("feedback/"):
                parts = [s["tensors"][name][key] for s in states if key in s["tensors"][name]]
                merged[name][key] = sum(parts, torch.zeros_like(value))
            else:
                merged[name][key] = value.clone()
    return merged


def non_finite(grads: Mapping[str, Tensor]) -> list[str]:
    """The names of those that hold NaN or Inf."""
    tensors = list(grads.values())
    if tensors and not any(tensor.is_sparse for tensor in tensors):
        row = in_a_row(tensors)
        if row is not None and math.isfinite(_largest(row)):
            return []
    magnitudes = zip(grads, largest_magnitudes(grads), strict=True)
    return [name for name, magnitude in magnitudes if not math.isfinite(magnitude)]


def largest_magnitudes(grads: Mapping[str, Tensor]) -> list[float]:
    """The largest magnitude in each gradient; NaN or Inf where it holds one. Reads each once."""
    if not grads:
        return []
    return torch.stack([_largest(grad) for grad in grads.values()]).tolist()


def _largest(grad: Tensor) -> Tensor:
    values = grad._values() if grad.is_sparse else grad
    if not values.is_floating_point():
        return values.new_zeros((), dtype=torch.float64)
    return max_abs(values)


def _grouped(grads: Mapping[str, Tensor], unit: str) -> list[dict[str, Tensor]]:
    """Tensors that share a unit, in order; a unit has one dtype and one device."""
    kinds: dict[tuple[torch.dtype, torch.device], list[dict[str, Tensor]]] = {}
    filled: dict[tuple[torch.dtype, torch.device], int] = {}
    for name, grad in grads.items():
        kind = (grad.dtype, grad.device)
        groups = kinds.setdefault(kind, [])
        full = filled.get(kind, 0) + grad.nbytes > BUCKET_BYTES
        if not groups or unit == "tensor" or (unit == "bucket" and full):
            groups.append({})
            filled[kind] = 0
        groups[-1][name] = grad
        filled[kind] += grad.nbytes
    return [group for groups in kinds.values() for group in groups]
