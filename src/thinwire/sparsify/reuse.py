"""Ok-Topk's selection: an exact threshold, reused over many steps."""

import math
from dataclasses import dataclass

import torch

from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_density, check_integer, check_range, target_count
from thinwire.sparsify._common import reaching, take_largest, take_largest_of
from thinwire.sparsify.topk import ExactOnGpu
from thinwire.types import Sparse, State, StepContext, TensorSpec

_NEVER = -1  # in place of the step at which the threshold was evaluated


@dataclass(frozen=True, slots=True)
class ReusedThreshold(ExactOnGpu):
    """All elements that reach the k-th largest magnitude of some steps ago.

    Ok-Topk, section 3.1.3 and Algorithm 1, lines 2-4: gradient statistics change slowly, so the
    exact threshold is evaluated every `interval` steps (τ') and serves in between, where a
    selection is one pass of comparisons. A step that evaluates takes exactly k.

    Deviation: while residuals ramp up, thresholds are stale at once (10 to 14 times k pass in
    the first steps). A count outside [`low`·k, `high`·k] therefore evaluates anew, in the same
    step. When too many passed that costs next to nothing: the k largest are among them.

    `cap` bounds the count where `high` does not: `low=0, high=inf` is the paper's plain rule, and
    then the largest `cap`·k of those that passed are taken, or all of them with `cap=inf`. What is
    not selected is not lost; it stays in the residual.

    On a GPU every step takes exactly k: see `ExactOnGpu`.
    """

    name = "reuse"

    density: float = 0.01
    interval: int = 32  # τ': Ok-Topk, section 5.2; 128 for BERT
    low: float = 0.75
    high: float = 1.25
    cap: float = 2.0

    def __post_init__(self) -> None:
        check_density(self.density)
        check_integer("interval", self.interval, 1)
        check_range("low", self.low, 0, 1)
        check_range("high", self.high, 1)
        check_range("cap", self.cap, 1)

    def init_estimate(self, spec: TensorSpec) -> State:
        """The threshold, and the step that evaluated it (kept on the host, which reads it)."""
        return {
            "threshold": torch.zeros((), dtype=spec.accumulator, device=spec.device),
            "evaluated_at": torch.tensor(_NEVER, dtype=torch.int64),
        }

    def estimate(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        """About k elements, none of them smaller than one left out; exactly k when evaluating."""
        chosen = self._choose(x, state, ctx)
        ctx.note("local_threshold", float(state["threshold"]))
        ctx.note("local_count", chosen.count)
        return chosen

    def _choose(self, x: LazySum, state: State, ctx: StepContext) -> Sparse:
        k = target_count(x.numel, self.density, ctx.density)
        if k == 0:
            return take_largest(x.dense(), 0)
        if not self._is_fresh(state, ctx):
            return self._evaluate(take_largest(x.dense(), k), state, ctx)
        passed = reaching(x, state["threshold"], k)
        if passed.count < self.low * k:
            return self._evaluate(take_largest(x.dense(), k), state, ctx)
        if passed.count > self.high * k:
            return self._evaluate(take_largest_of(passed, k), state, ctx)
        return take_largest_of(passed, math.floor(min(passed.count, self.cap * k)))

    def _is_fresh(self, state: State, ctx: StepContext) -> bool:
        """Whether the threshold may serve: not too old, and not from another run's later step."""
        evaluated_at = int(state["evaluated_at"])
        return evaluated_at != _NEVER and 0 <= ctx.step - evaluated_at < self.interval

    def _evaluate(self, chosen: Sparse, state: State, ctx: StepContext) -> Sparse:
        """Take exactly these, the k largest, and remember the smallest of them."""
        threshold = chosen.values.abs().min()
        state["threshold"] = threshold
        # A threshold of zero tells nothing of the next step: a gradient of zeros must not decide
        # what is sent for a whole interval.
        usable = float(threshold) > 0
        state["evaluated_at"] = torch.tensor(ctx.step if usable else _NEVER, dtype=torch.int64)
        return chosen
