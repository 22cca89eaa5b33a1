"""PowerSGD: two allreduces of thin factors in place of one of matrices."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire import foreach
from thinwire.collective._factoring import Factoring, factoring
from thinwire.collective._orthonormal import orthonormal
from thinwire.collective._owners import dense_of
from thinwire.collective.dense import WIRE_DTYPES, Dense
from thinwire.errors import RecipeError
from thinwire.rng import hash_to_unit, stream_seed
from thinwire.settings import check_choice, check_integer, check_range
from thinwire.types import (
    AnyCodec,
    Collective,
    ExchangeContext,
    Products,
    Reduced,
    Selection,
    State,
)

DTYPES = ("fp32", "bf16")  # float16 has too small a range for products


@dataclass(frozen=True, slots=True)
class LowRank(Collective):
    """Each matrix M as P̂·Qᵀ of `rank` columns: one power iteration from the last step's Q.

    Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for
    distributed optimization", NeurIPS 2019, algorithm 1:

        P = Σ M·Q;  P̂ = orthonormal(P);  Q = Σ Mᵀ·P̂;  total = P̂·Qᵀ

    with both sums over the ranks by allreduce, so that the total is that of the summed gradient,
    P̂·P̂ᵀ·Σ M, for any number of ranks. A rank's share of it is P̂·(Mᵀ·P̂)ᵀ.

    Tensors of more dimensions are matrices of the first by the others. Small tensors, and those
    whose factors would not have at most half as many elements, ride along with P as they are. All
    of them travel so in the first `start` steps, from which Q is learnt all the same. "bf16" rounds
    what travels; each rank is charged its own rounding, that of the additions inside the backend
    is charged to no rank.

    Q is kept by the tensor's name, its columns scaled to length one. A column that nothing came of
    (the gradient was zero, or of lower rank) stays what it was, so that the next step looks there
    again.

    A rank below 1 is a share of the unit's width (`width_of`), and at least 16: one setting for
    models of all sizes.

    Deviations: the paper keeps Q as it came; a rank's error is what its own share leaves
    (algorithm 2, line 9), where PyTorch's hook subtracts the mean and lets the ranks' errors drift
    apart; Cholesky-QR in place of Gram-Schmidt.
    """

    name = "lowrank"

    rank: float = 4  # columns; below 1, a share of the matrices' width
    dtype: str = "fp32"
    start: int = 0

    takes = "none"
    keeps_back = True
    whole_is_steady = True
    in_two_rounds = True

    def __post_init__(self) -> None:
        check_range("rank", self.rank, 0, open_low=True)
        if self.rank >= 1 and not isinstance(self.rank, int):
            raise RecipeError(f"rank={self.rank} must be an integer, or a share below 1")
        check_choice("dtype", self.dtype, DTYPES)
        check_integer("start", self.start, 0)

    def without_loss(self) -> Dense:
        """Rows are no matrices."""
        return Dense()

    def replays(self, state: State, step: int) -> Hashable | None:
        """Once there are factors: where there are none they are drawn by seeds of the step."""
        return () if step >= self.start and state else None

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        plan = factoring(ctx.shapes, self.rank)
        if not plan.groups or ctx.step < self.start:
            reduced = Dense(self.dtype).exchange(s, codec, ctx)
            if plan.groups:
                with ctx.phase("decode"):
                    _learn(plan, dense_of(reduced.total), ctx)
            return reduced
        x = dense_of(s)
        with ctx.phase("encode"):
            guess = _recall(plan, x, ctx)
            wire = self._wire(_left_factors(plan, x, guess, ctx.bad))
        with ctx.phase("exchange"):
            ctx.comm.all_reduce(wire)
        with ctx.phase("encode"):
            if ctx.bad is not None:
                ctx.later(wire[-1] > 0, ctx.note_bad)
            left = orthonormal(wire[: plan.left_size].to(x.dtype), plan.left_runs)
            mine = _right_factors(plan, x, left)
            right, mine = self._wire(mine, copy=True), self._rounded(mine)
        with ctx.phase("exchange"):
            ctx.comm.all_reduce(right)
        with ctx.phase("decode"):
            right = right.to(x.dtype).div_(ctx.gradients)
            _remember(plan, right, guess, ctx)
            whole = wire[plan.left_size :][: plan.whole_size].to(x.dtype).div_(ctx.gradients)
            mean = _products(plan, left, right, _cut(plan, whole))
            own = [self._rounded(part) for part in _stretches(plan, x)]
            delivered = _products(plan, left, mine, own)
            out = ctx.output(x.numel(), x, zeroed=False)
            return Reduced(mean.write_to(out), delivered, is_mean=True)

    def _wire(self, row: Tensor, copy: bool = False) -> Tensor:
        return row.to(WIRE_DTYPES[self.dtype] or row.dtype, copy=copy)

    def _rounded(self, row: Tensor) -> Tensor:
        """What comes of a row on the wire."""
        return self._wire(row).to(row.dtype)


def _left_factors(plan: Factoring, x: Tensor, guess: Tensor, bad: Tensor | None) -> Tensor:
    """P of every matrix, and what travels as it is; at the end whether our gradient was finite."""
    row = x.new_empty(plan.left_size + plan.whole_size + (bad is not None))
    for group in plan.groups:
        torch.bmm(group.right.of(guess), group.where.of(x).mT, out=group.left.of(row))
    if plan.stretches:
        foreach.copy_(_cut(plan, row[plan.left_size :]), _stretches(plan, x))
    if bad is not None:
        row[-1:].copy_(bad)
    return row


def _right_factors(plan: Factoring, x: Tensor, left: Tensor) -> Tensor:
    """Q of every matrix."""
    row = x.new_empty(plan.right_size)
    for group in plan.groups:
        torch.bmm(group.left.of(left), group.where.of(x), out=group.right.of(row))
    return row


def _learn(plan: Factoring, total: Tensor, ctx: ExchangeContext) -> None:
    """A power iteration of what all ranks have anyway, so that Q is a good guess at the start."""
    guess = _recall(plan, total, ctx)
    left = _left_factors(plan, total, guess, None)[: plan.left_size]
    right = _right_factors(plan, total, orthonormal(left, plan.left_runs))
    _remember(plan, right, guess, ctx)


def _products(
    plan: Factoring, left: Tensor, right: Tensor, stretches: Sequence[Tensor]
) -> Products:
    return Products(
        [(group.where, group.left.of(left), group.right.of(right)) for group in plan.groups],
        [(begin, part) for (begin, _), part in zip(plan.stretches, stretches, strict=True)],
    )


def _stretches(plan: Factoring, x: Tensor) -> list[Tensor]:
    """What travels as it is, where it lies in the unit."""
    return [x[begin:end] for begin, end in plan.stretches]


def _cut(plan: Factoring, row: Tensor) -> list[Tensor]:
    """The same in a row that begins with it."""
    lengths = [end - begin for begin, end in plan.stretches]
    return list(row[: plan.whole_size].split(lengths)) if lengths else []


def _recall(plan: Factoring, x: Tensor, ctx: ExchangeContext) -> Tensor:
    """The last step's Q of every matrix; what there is none of is drawn.

    Where they still lie as `_remember` left them, that row itself: it changes in place.
    """
    factors = []
    for name, numel in _owners(plan, ctx):
        known = ctx.memory.get(f"factor/{name}")
        if known is None or known.numel() != numel:
            seed = stream_seed(ctx.seed, ctx.step, name, "lowrank")
            known = hash_to_unit(torch.arange(numel, device=x.device), seed).sub_(0.5)
        factors.append(known.to(x).view(-1))
    row = foreach.in_a_row(factors)
    return torch.cat(factors) if row is None else row


def _remember(plan: Factoring, right: Tensor, guess: Tensor, ctx: ExchangeContext) -> None:
    """Keep Q for the next step, column by column where something came of it; else what we had."""
    for run in plan.right_runs:
        columns, before = run.of(right), run.of(guess)  # as rows
        norms = torch.linalg.vector_norm(columns, dim=2, keepdim=True)
        usable = (norms > 0) & (norms < torch.inf)
        torch.where(usable, columns / norms, before, out=before)
    owners = _owners(plan, ctx)
    factors = guess.split([numel for _, numel in owners])
    for (name, _), factor in zip(owners, factors, strict=True):
        ctx.memory[f"factor/{name}"] = factor


def _owners(plan: Factoring, ctx: ExchangeContext) -> list[tuple[str, int]]:
    """Whose the right factors are, as they lie, and how many elements each has."""
    numbered = (f"{ctx.tensor}.{place}" for place in range(len(ctx.shapes)))
    names = ctx.layout.names if ctx.layout else tuple(numbered)
    return [(names[tensor], group.right.every) for group in plan.groups for tensor in group.tensors]
