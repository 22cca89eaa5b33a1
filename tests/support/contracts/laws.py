"""Laws 1 and 2 for what one run saw; conservation in units of what rounding allows."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

import thinwire as tw
from support.contracts.cases import DTYPES, Layer
from thinwire.collective import Dense, LowRank
from thinwire.collective._factoring import is_thin
from thinwire.feedback import Adam, Ef21, Momentum, Residual
from thinwire.types import accumulator

WIRES = {"fp16": torch.float16, "bf16": torch.bfloat16}
State = dict[str, Tensor]


@dataclass(frozen=True)
class Rounding:
    """One dtype's rounding error for one operation: relative, and absolute below normal numbers."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> "Rounding":
        form = torch.finfo(dtype)
        return cls(form.eps, form.smallest_normal * form.eps)


@dataclass(frozen=True)
class Step:
    """What one rank saw of one step, tensor by tensor."""

    updates: tuple[str, ...]  # digests
    excess: tuple[float, ...]  # of the recipe's law, in units of what rounding allows
    in_place: bool


def check(steps_by_rank: list[list[Step]]) -> None:
    """Laws 1 and 2, for what `ranks.train` saw."""
    for steps in zip(*steps_by_rank, strict=True):
        assert len({step.updates for step in steps}) == 1, "updates differ between ranks"
        for step in steps:
            assert max(step.excess, default=0) <= 1, f"beyond rounding, by tensor: {step.excess}"
            assert step.in_place


def check_exchange(exchanges_by_rank: list[list[tuple[str, float]]]) -> None:
    """What the ranks delivered is the total, for what `ranks.exchange` saw."""
    for exchanges in zip(*exchanges_by_rank, strict=True):
        assert len({total for total, _ in exchanges}) == 1, "totals differ between ranks"
        assert max(excess for _, excess in exchanges) <= 1


def sum_over_ranks(x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    if group is not None:
        dist.all_reduce(x, group=group)
    return x


def sums_over_ranks(
    all_parts: Mapping[str, Tensor], group: dist.ProcessGroup | None
) -> dict[str, Tensor]:
    """Of many tensors by one allreduce: eight ranks on two cores take milliseconds for each."""
    if not all_parts:
        return {}
    joined = sum_over_ranks(torch.cat([part.reshape(-1) for part in all_parts.values()]), group)
    pieces = joined.split([part.numel() for part in all_parts.values()])
    return {
        name: piece.view(part.shape)
        for (name, part), piece in zip(all_parts.items(), pieces, strict=True)
    }


def accumulating_dtype(pipeline: tw.Pipeline, dtype: torch.dtype, numel: int) -> torch.dtype:
    """In which the ranks' contributions are added: 16-bit allreduce adds in 16 bits."""
    collective = pipeline.collective
    rounds = isinstance(collective, Dense | LowRank) and collective.dtype in WIRES
    if numel > pipeline.bypass and rounds:
        return WIRES[collective.dtype]
    return accumulator(dtype)


def inflow(pipeline: tw.Pipeline, grad: Tensor, old: State, dtype: torch.dtype) -> list[Tensor]:
    """What a rank brings to the step, as summands: its gradient, and what waited.

    A feedback that makes steps of gradients brings its step. What decays is less by then.
    """
    waiting, step = old.get("feedback/residual"), int(old.get("step", 0))
    if isinstance(pipeline.feedback, Adam):
        grad = own_step(pipeline.feedback, grad.to(accumulator(dtype)), old, step)
    if waiting is None:
        return [grad]
    brought = [grad, waiting.double()]
    if isinstance(pipeline.feedback, Residual):
        brought[1] *= pipeline.feedback.at(step).decay
    if isinstance(pipeline.feedback, Momentum):
        assert pipeline.feedback.clip_norm is None
        brought.append(pipeline.feedback.factor * old["feedback/velocity"].double())
    return brought


def terms(pipeline: tw.Pipeline, shape: tuple[int, ...], brought: list[Tensor]) -> Tensor | float:
    """How large the terms of a low-rank product can be where the product itself is small.

    An element of P̂·qᵀ is a sum over k of P̂[i, k]·q[j, k] and is rounded as these are. P̂ has
    orthonormal columns and q = Mᵀ·P̂, so that their magnitudes add up to the norm of M's column j
    at most.
    """
    if not isinstance(pipeline.collective, LowRank) or not is_thin(shape, pipeline.collective.rank):
        return 0.0
    norms = sum(brought).view(shape[0], -1).norm(dim=0)
    return norms.expand(shape[0], -1).reshape(-1).clone()


def own_step(adam: Adam, grad: Tensor, old: State, step: int) -> Tensor:
    """What `adam` makes of this gradient: tests/feedback/test_adam.py says what that must be."""
    state = adam.init(tw.TensorSpec("", grad.numel(), grad.dtype, grad.device))
    state |= {
        key: old[f"feedback/{key}"].clone()
        for key in state
        if f"feedback/{key}" in old and key != "residual"
    }
    return adam.at(step).before(grad, state).double()


def counts_all(pipeline: tw.Pipeline) -> bool:
    """Whether what is not in the update is in some rank's state, or known to be forgotten."""
    decays = isinstance(pipeline.feedback, Residual) and pipeline.collective.conserves
    return pipeline.conserves or decays


def outflow(new: State) -> Tensor | float:
    """What still waits after it."""
    return new["feedback/residual"].double() if "feedback/residual" in new else 0.0


def balance(pipeline: tw.Pipeline, layer: Layer, grad: Tensor, old: State, new: State) -> Tensor:
    """A rank's inflow - outflow, and how much it moved, in two rows: to be added over the ranks."""
    brought, kept = inflow(pipeline, grad, old, DTYPES[layer.dtype]), outflow(new)
    magnitudes = sum(part.abs() for part in brought) + abs(kept)
    magnitudes += terms(pipeline, layer.shape, brought)
    return torch.stack((sum(brought) - kept, magnitudes))


def conservation_excess(
    pipeline: tw.Pipeline, layer: Layer, balances: Tensor, update: Tensor, size: int
) -> float:
    """The largest |Σ (inflow - outflow) - P·update|, elementwise, over what rounding allows.

    `balances` are those of all ranks, added.
    """
    dtype = DTYPES[layer.dtype]
    settled, moved = balances[0], balances[1] + size * update.abs()
    # Two roundings for feedback before and two after it, P for the sum, one for the mean; and
    # as many in this test's own float64 sums.
    adding = Rounding.of(accumulating_dtype(pipeline, dtype, update.numel()))
    operations = 2 * size + 10
    allowed = operations * (adding.relative * moved + size * adding.absolute)
    if dtype != accumulator(dtype):  # the update was rounded into the gradient's own storage
        writing = Rounding.of(dtype)
        allowed += size * (writing.relative * update.abs() + writing.absolute)
    return worst((settled - size * update).abs(), allowed)


def estimate_excess(
    update: Tensor,
    old: State | None,
    new: State,
    dtype: torch.dtype,
    group: dist.ProcessGroup | None,
    size: int,
) -> float:
    """EF21: the update is the mean of the ranks' estimates, which all ranks keep.

    So in a step the estimates must move by as much, together, as P times the mean of them; both
    start from zero. Measured over what rounding allows.
    """
    estimate, mean = (new[f"feedback/{key}"] for key in ("estimate", "mean_estimate"))
    if not torch.equal(update.to(dtype), mean.to(dtype)):
        return torch.inf
    estimate, mean = estimate.double(), mean.double()
    before, mean_before = torch.zeros_like(mean), torch.zeros_like(mean)
    if old is not None:
        before = old["feedback/estimate"].double()
        mean_before = old["feedback/mean_estimate"].double()
    parts = torch.stack((estimate - before, estimate.abs() + before.abs()))
    gone, moved = sum_over_ranks(parts, group)
    gap = gone - size * (mean - mean_before)
    moved += size * (mean.abs() + mean_before.abs())
    # One rounding for each rank's estimate, P for the sum, one for the mean, one to add it.
    rounding = Rounding.of(accumulator(dtype))
    allowed = (size + 4) * (rounding.relative * moved + size * rounding.absolute)
    return worst(gap.abs(), allowed)


def worst(gap: Tensor, allowed: Tensor) -> float:
    """0 where there is nothing to compare; NaN counts as infinitely wrong."""
    if not gap.numel():
        return 0.0
    return (gap / allowed).nan_to_num(nan=torch.inf).max().item()


def uses_estimates(pipeline: tw.Pipeline) -> bool:
    return isinstance(pipeline.feedback, Ef21)
