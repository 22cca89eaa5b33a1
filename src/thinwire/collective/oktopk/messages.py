"""What Ok-Topk's two phases share: parts of regions as messages of any length."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from thinwire.collective._received import decode_like
from thinwire.comm.messages import possible_length
from thinwire.types import Codec, ExchangeContext, Sparse


def encode_part(part: Sparse, codec: Codec, ctx: ExchangeContext) -> Tensor:
    """The part's wire. Nothing is said of an empty part: its message has no bytes."""
    if part.count == 0:
        return torch.empty(0, dtype=torch.uint8, device=part.indices.device)
    return codec.encode(part, ctx)


def decode_part(
    wire: Tensor, like: Sparse, numel: int, codec: Codec, ctx: ExchangeContext
) -> Sparse:
    """The part of a region of `numel` elements, ascending; `like` has the dtype and the device."""
    if wire.numel() == 0:
        return Sparse(like.indices[:0], like.values[:0], numel)
    expected = Sparse(like.indices[:0], like.values[:0], numel)
    return decode_like(wire, expected, codec, ctx).sorted()


def announced(
    outgoing: Mapping[int, Tensor],
    sources: Collection[int],
    device: torch.device,
    ctx: ExchangeContext,
) -> dict[int, Tensor]:
    """Tell each receiver the length of its message, and make buffers for what will come."""
    lengths = {r: torch.tensor([wire.numel()], device=device) for r, wire in outgoing.items()}
    coming = {r: torch.empty(1, dtype=torch.int64, device=device) for r in sources}
    ctx.comm.exchange(lengths, coming)
    sizes = {r: possible_length(int(n), r) for r, n in coming.items()}
    return {r: torch.empty(n, dtype=torch.uint8, device=device) for r, n in sizes.items()}
