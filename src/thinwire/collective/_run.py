"""Around an exchange: errors that say which one broke off, and the mean of what it brought."""

from torch import Tensor

from thinwire.errors import exchange_named
from thinwire.types import AnyCodec, Collective, ExchangeContext, Reduced, Selection, Sparse

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
