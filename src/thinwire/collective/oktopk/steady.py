"""Ok-Topk on a GPU: two exchanges of parts of equal size, and nothing that the host must know.

Algorithm 1 with every count fixed beforehand. A rank sends each region's owner room for `ROOM`
times a P-th of its selection; boundaries balance these, and what finds no room stays in the
residual. An owner keeps the k/P largest sums of its region, where the paper keeps what reaches a
global threshold: the regions are about equally full, and no share has to be evened out afterwards.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.kernels.batched_decode import add_rows
from thinwire.kernels.exact_topk import largest
from thinwire.types import PADDING, Codec, ExchangeContext, Reduced, Sparse

ROOM = 1.25  # times a P-th of the selection, for what lies in one region
SPARE_ROOM = 16  # elements


def exchange_steadily(
    s: Sparse, codec: Codec, wanted: int, interval: int, ctx: ExchangeContext
) -> Reduced:
    """About `wanted` elements of the sum of all selections; boundaries serve `interval` steps."""
    comm, numel, exact = ctx.comm, s.numel, codec.without_rounding()
    edges = _edges(s, interval, ctx)
    with ctx.phase("encode"):
        indices, values = _by_region(s, edges, comm.size)
        wires = codec.encode_rows(indices, values, numel, ctx)
    with ctx.phase("exchange"):
        arrived = comm.all_to_all_equal(wires)
    with ctx.phase("decode"):
        like = Sparse(indices[0], values[0], numel, padded=True)
        region, sums = _add_up(*codec.decode_rows(arrived, like, ctx))
        marked = sums.isnan().any()  # some rank's gradient was not finite
        kept = min(math.ceil(wanted / comm.size), sums.numel() - 1)
        region, sums = _largest(region, sums.nan_to_num_(0.0), kept)
        sums[:1].masked_fill_(marked, torch.nan)
    with ctx.phase("encode"):
        wire = exact.encode_rows(region[None], sums[None], numel, ctx)[0]
    with ctx.phase("exchange"):
        gathered = comm.all_gather_equal(wire)
    with ctx.phase("decode"):
        survivors = exact.decode_rows(gathered, Sparse(region, sums, numel, padded=True), ctx)
        ctx.later(survivors[1][:, 0].isnan().any(), ctx.note_bad)
        mean = add_rows(*survivors, ctx.output(numel, sums), 1 / ctx.gradients)
        return Reduced(mean, _delivered(*codec.decode_rows(wires, like, ctx), mean), is_mean=True)


def _edges(s: Sparse, interval: int, ctx: ExchangeContext) -> tuple[Tensor, Tensor]:
    """Where each region begins and ends: the mean of where the ranks would cut.

    Section 3.1.1 and Algorithm 1, lines 5-7. They stay on the device.
    """
    if "cuts" in ctx.memory and ctx.step % interval:
        cuts = ctx.memory["cuts"].to(s.indices.device)
    else:
        with ctx.phase("exchange"):
            size = ctx.comm.size
            own = s.indices[torch.arange(1, size, device=s.indices.device) * s.count // size]
            cuts = ctx.comm.all_reduce(own.clamp(max=s.numel) // size)
            ctx.memory["cuts"] = cuts
    return pad(cuts, (1, 0)), pad(cuts, (0, 1), value=s.numel)


def _by_region(s: Sparse, edges: tuple[Tensor, Tensor], ranks: int) -> tuple[Tensor, Tensor]:
    """A row for each region, of what was selected in it as far as there is room, then padding."""
    room = min(s.count, math.ceil(ROOM * s.count / ranks) + SPARE_ROOM)
    first, end = (torch.searchsorted(s.indices, edge)[:, None] for edge in edges)
    place = first + torch.arange(room, device=first.device)
    there, place = place < end, place.clamp(max=s.count - 1)
    return torch.where(there, s.indices[place], PADDING), torch.where(there, s.values[place], 0)


def _add_up(indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The sum at each index of ordered lists, in the order of the lists.

    At the first of equal indices; the others are padding, and zero.
    """
    ordered, order = indices.flatten().sort(stable=True)
    values = values.flatten()[order]
    total = values.clone()
    for after in range(1, len(indices)):
        same = ordered[after:] == ordered[:-after]
        total[:-after] += torch.where(same, values[after:], 0)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[1:] = ordered[1:] == ordered[:-1]
    return ordered.masked_fill(repeated, PADDING), total.masked_fill_(repeated, 0)


def _largest(indices: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` of largest magnitude in order, padding last."""
    places, values, _ = largest(values, count)
    indices, order = indices[places].masked_fill(values == 0, PADDING).sort(stable=True)
    return indices, values[order]


def _delivered(indices: Tensor, values: Tensor, mean: Tensor) -> Sparse:
    """What this rank sent and the sum kept: Algorithm 1, line 14.

    Where the sum came to zero nobody delivered anything.
    """
    kept = mean[indices.clamp(max=mean.numel() - 1)] != 0
    values = torch.where(kept, values, 0)
    return Sparse(indices.flatten(), values.flatten(), mean.numel(), ordered=False, padded=True)
