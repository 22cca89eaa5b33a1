"""Adam before the selection: what is compressed are steps, so that no spike reaches the moments."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.feedback._settle import take_delivered
from thinwire.kernels.addend import Addend
from thinwire.kernels.lazy_sum import LazySum
from thinwire.settings import check_integer, check_range
from thinwire.types import Feedback, Reduced, State, TensorSpec

KEPT = 0.9  # of v at a refresh, at least: fewer than ten squares would be noise


@dataclass(frozen=True, slots=True)
class Adam(Feedback):
    """Each rank runs Adam on its own gradient; the residual accumulates the steps that come of it.

    m ← β₁·m + (1-β₁)·g; v ← β₂·v + (1-β₂)·g², both unbiased; u = m / (√v̂ + ε); r ← r + u; send
    from r. The update is the mean of what was delivered, to be taken times the learning rate:
    `thinwire.optim` does that. (QAdam, Chen et al. 2020, Algorithm 2, which quantises; with top-k
    and any other selection it works the same way.)

    Behind a residual of gradients a steady g arrives as rare spikes of g/ρ, which an Adam after the
    exchange squares: v grows to g²/ρ and steps shrink by √ρ. Here both moments see every gradient.

    Without `refresh` v̂ is what v would be of the mean over `workers` gradients, whose noise is
    smaller: v̂ = s + (v - s)/workers. The part s that is no noise is m² without the noise left in
    it: over the steps that m averages a share κ = (1-β₁)/(1+β₁) of v - s is left, so that
    E m² = s + κ·(v - s).

    With it, the mean of the gradients themselves is exchanged in the first `refresh` steps and then
    in every `refresh`-th (0/1 Adam, Lu et al. 2022, does so ever more rarely), and v̂ is the average
    of its squares: of the time that β₂ says, but of ten at least. In between no step exceeds what
    Adam's own cannot (Kingma and Ba, section 2.1).

    Conserves in this sense: Σ (r + u) = P·update + Σ r'.
    """

    name = "adam"

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    workers: int = 1
    refresh: int = 0

    conserves: ClassVar[bool] = True
    adds_lazily: ClassVar[bool] = True
    is_step: ClassVar[bool] = True
    squares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range("beta1", self.beta1, 0, 1, open_high=True)
        check_range("beta2", self.beta2, 0, 1, open_high=True)
        check_range("eps", self.eps, 0, open_low=True)
        check_integer("workers", self.workers, 1)
        check_integer("refresh", self.refresh, 0)

    def at(self, step: int) -> "AdamAt":
        """With the weights of the first steps, which make both averages unbiased."""
        return AdamAt(self, step + 1)

    @property
    def square(self) -> str:
        """Where v is: of a rank's own gradients, or of the mean of all."""
        return "common_square" if self.refresh else "average_square"

    def init(self, spec: TensorSpec) -> State:
        kept = ("average_gradient", self.square, "residual")
        return {
            key: torch.zeros(spec.numel, dtype=spec.accumulator, device=spec.device) for key in kept
        }

    def before(self, grad: Tensor, state: State) -> Tensor:
        return self.at(0).before(grad, state)

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        take_delivered(reduced.delivered, state["residual"])
        return mean

    def rescale(self, state: State, factor: float) -> None:
        """Steps stay what they are, whatever the loss is multiplied by."""
        state["average_gradient"].mul_(factor)
        state[self.square].mul_(factor * factor)


@dataclass(frozen=True, slots=True)
class AdamAt(Feedback):
    """`Adam` at the n-th of its steps."""

    adam: Adam
    n: int

    is_step: ClassVar[bool] = True

    def before(self, grad: Tensor, state: State) -> Tensor:
        return self.lazy_sum(grad, state, clear=False).dense()

    def lazy_sum(
        self, grad: Tensor, state: State, clear: bool, bad: Tensor | None = None
    ) -> LazySum:
        """What `before` returns, still to be added up."""
        residual = state["residual"]
        own = grad.to(residual.dtype)
        if bad is not None:
            finite = own.isfinite()
            bad.bitwise_or_(finite.all().logical_not_().to(torch.int32))
            own = torch.where(finite, own, 0)
        step = self._step(own, state)
        if clear:
            grad.zero_()
        return LazySum(residual, Addend(step))

    def after(self, x: Tensor, reduced: Reduced, mean: Tensor, state: State) -> Tensor:
        return self.adam.after(x, reduced, mean, state)

    @property
    def wants_mean(self) -> bool:
        """In the first steps, and then every so often."""
        step, every = self.n - 1, self.adam.refresh
        return bool(every) and (step < every or step % every == 0)

    def learn(self, mean: Tensor, state: State) -> None:
        """One more square for v."""
        every = self.adam.refresh
        seen = self.n if self.n <= every else every + (self.n - 1) // every
        newest = max(1 / seen, 1 - max(self.adam.beta2**every, KEPT))
        state["common_square"].lerp_(mean.square(), newest)

    def _step(self, grad: Tensor, state: State) -> Tensor:
        adam, (m, v) = self.adam, (state["average_gradient"], state[self.adam.square])
        m.lerp_(grad, self._newest(adam.beta1))
        if adam.refresh:
            alone = self._newest(adam.beta1) / math.sqrt(self._newest(adam.beta2))
            largest = max(1.0, alone)  # of a gradient after none, or of many alike
            return (m / v.sqrt().add_(adam.eps)).clamp_(-largest, largest)
        new = self._newest(adam.beta2)
        v.mul_(1 - new).addcmul_(grad, grad, value=new)
        return m / self._square(m, v).sqrt_().add_(adam.eps)

    def _newest(self, beta: float) -> float:
        """The weight of the newest in an average that is unbiased from the first step on."""
        return (1 - beta) / (1 - beta**self.n)

    def _square(self, m: Tensor, v: Tensor) -> Tensor:
        """v̂, in new memory."""
        workers, kept = self.adam.workers, self._noise_kept()
        if workers == 1 or kept >= 1:
            return v / workers
        # s = (m² - κ·v)/(1-κ), at least 0 and at most v; then s·(1 - 1/P) + v/P.
        steady = torch.addcmul(v * -kept, m, m).div_(1 - kept).clamp_(min=0).minimum(v)
        return steady.mul_(1 - 1 / workers).add_(v, alpha=1 / workers)

    def _noise_kept(self) -> float:
        """κ: how much of a gradient's noise is left in the average of n; 1 of a single one."""
        beta = self.adam.beta1
        old = beta**self.n
        return (1 - beta) * (1 + old) / ((1 + beta) * (1 - old))
