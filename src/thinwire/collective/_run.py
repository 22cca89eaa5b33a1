"""Around an exchange: errors that say which one broke off, and the mean of what it brought."""

import torch
from torch import Tensor

from thinwire.errors import exchange_named
from thinwire.types import (
    AnyCodec,
    Collective,
    ExchangeContext,
    Reduced,
    Selection,
    Sparse,
    StepContext,
)

_SCATTER_COST = 200  # an indexed element costs as much as so many in a row (25.6 M floats, CPU)


def run_exchange(
    collective: Collective, s: Selection, codec: AnyCodec, ctx: ExchangeContext
) -> Reduced:
    """The exchange; where it breaks off, the error says of which collective, tensor and step."""
    with exchange_named(type(collective).__name__, ctx.tensor, ctx.step):
        return collective.exchange(s, codec, ctx)


def mean_of(reduced: Reduced, numel: int, gradients: int, ctx: ExchangeContext) -> Tensor:
    """The dense mean. Reads no more of the total than can be non-zero."""
    total = reduced.total
    if reduced.is_mean:
        assert isinstance(total, Tensor)
        return total
    if isinstance(total, Sparse):
        shares = Sparse(total.indices, total.values / gradients, total.numel, total.ordered)
        return shares.add_to(ctx.output(numel, total.values))
    if gradients == 1:
        return total
    if reduced.support is None or reduced.support.numel() * _SCATTER_COST > numel:
        return total.div_(gradients)
    # Indices may repeat; all repeats write the same quotient.
    total[reduced.support] = total[reduced.support] / gradients
    return total


def in_16_bits(grad: Tensor) -> Tensor:
    """A copy of a gradient to be averaged; what is not finite counts as zero."""
    return grad.to(torch.bfloat16, copy=True).nan_to_num_(0.0, 0.0, 0.0)


def mean_of_gradients(own: Tensor, gradients: int, ctx: StepContext, dtype: torch.dtype) -> Tensor:
    """The mean over all ranks of what `in_16_bits` kept; the same bits on every rank."""
    with ctx.phase("exchange"):
        return ctx.comm.all_reduce(own).to(dtype).div_(gradients)
