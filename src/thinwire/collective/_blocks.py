"""A flat tensor cut into blocks, of which the last may be short; on the wire it is filled up."""

from dataclasses import replace

import torch
from torch import Tensor

from thinwire.collective.dense import Dense
from thinwire.kernels.blocks import block_elements, gather_blocks, scatter_blocks
from thinwire.kernels.merge import nonzero
from thinwire.types import ExchangeContext, Reduced, Selection, Sparse


def block_count(numel: int, block: int) -> int:
    """How many blocks there are, with a short one."""
    return -(-numel // block)


def in_blocks(s: Selection, block: int) -> tuple[Sparse, int]:
    """What of a selection is worth a block, in order, and how large a block is then.

    Rows, as of an embedding, are blocks of their own and stay whole; all else becomes single
    elements that are not zero.
    """
    if isinstance(s, Sparse):
        ordered = s.sorted()
        return (ordered, s.width) if s.values.dim() == 2 else (nonzero(ordered), block)
    indices = s.nonzero().flatten()
    return Sparse(indices, s[indices], s.numel()), block


def without_padding(rows: Sparse, numel: int) -> Sparse:
    """The elements of ordered blocks, less those beyond the end of the tensor."""
    elements = rows.elements()
    short = rows.count > 0 and int(rows.indices[-1]) == rows.rows - 1
    count = elements.count - (rows.numel - numel if short else 0)
    return Sparse(elements.indices[:count], elements.values[:count], numel)


def total_of(rows: Sparse, numel: int, ctx: ExchangeContext) -> Selection:
    """A sum of ordered blocks as the tensor's own: all of them, rows of it, or written into it."""
    if rows.count == rows.rows:
        return rows.values.reshape(-1)[:numel]
    if rows.numel == numel:
        return rows
    total = ctx.output(numel, rows.values)
    whole = numel // rows.width
    inner = int(torch.searchsorted(rows.indices, whole))
    total[: whole * rows.width].view(whole, rows.width)[rows.indices[:inner]] = rows.values[:inner]
    if inner < rows.count:
        total[whole * rows.width :] = rows.values[-1, : numel - whole * rows.width]
    return total


def sum_blocks(
    source: Tensor, blocks: Tensor, block: int, dtype: str, ctx: ExchangeContext
) -> Reduced:
    """The mean of all that the ranks have in these blocks, among which there may be padding."""
    numel = source.numel()
    with ctx.phase("encode"):
        values = gather_blocks(source, blocks, block)
    reduced = Dense(dtype).exchange(values, None, replace(ctx, out=None))
    assert isinstance(reduced.total, Tensor) and isinstance(reduced.delivered, Tensor)
    with ctx.phase("decode"):
        mean = reduced.total if reduced.is_mean else reduced.total.div_(ctx.gradients)
        out = ctx.output(numel, mean)
        indices = block_elements(blocks, block, numel)
        padded = ctx.steady or numel % block > 0
        delivered = Sparse(indices, reduced.delivered, numel, padded=padded)
        return Reduced(scatter_blocks(mean, blocks, block, out), delivered, is_mean=True)
