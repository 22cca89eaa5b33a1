"""PyTorch's COO tensors: as `Sparse` and back, and averaged over the ranks.

`nn.Embedding(sparse=True)` and `EmbeddingBag` have gradients of this form: they are sparse by
themselves, so that there is nothing to select, and nothing left over to keep.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from thinwire.codec import Pair
from thinwire.codec.sketch import CountSketch
from thinwire.collective import AllGather
from thinwire.collective._owners import is_exact
from thinwire.comm import GroupCommunicator, Nodes
from thinwire.errors import ExchangeError
from thinwire.pipeline import Pipeline
from thinwire.types import (
    AnyCodec,
    Codec,
    CodecKind,
    Collective,
    Selection,
    Sparse,
    StepContext,
    accumulator,
)
from thinwire.units.stats import Cost, Meter


def from_coo(coo: Tensor) -> Sparse:
    """A coalesced COO tensor as rows: one for each index of its sparse dimensions."""
    width = coo.shape[coo.sparse_dim() :].numel()
    strides = torch.empty(coo.shape[: coo.sparse_dim()], device="meta").stride()
    rows = torch.zeros_like(coo.indices()[0])
    for index, stride in zip(coo.indices(), strides, strict=True):
        rows += index * stride
    return Sparse(rows, coo.values().reshape(-1, width), coo.shape.numel())


def to_coo(total: Selection, like: Tensor) -> Tensor:
    """A sum in any form as a coalesced COO tensor of the shape of `like`."""
    sparse = like.sparse_dim()
    rows = as_rows(total, like.shape[sparse:].numel())
    indices = torch.stack(torch.unravel_index(rows.indices, like.shape[:sparse]))
    values = rows.values.reshape(-1, *like.shape[sparse:])
    return torch.sparse_coo_tensor(
        indices, values, like.shape, check_invariants=False, is_coalesced=True
    )


def as_rows(total: Selection, width: int) -> Sparse:
    """The same elements as ordered rows of `width`, with zeros where a row has none."""
    if not isinstance(total, Sparse):
        dense = total.view(-1, width)
        indices = dense.any(1).nonzero().flatten()
        return Sparse(indices, dense[indices], total.numel())
    ordered = total.sorted()
    if total.values.dim() == 2 and total.width == width:
        return ordered
    elements = ordered.elements()
    rows, place = torch.unique_consecutive(elements.indices // width, return_inverse=True)
    values = elements.values.new_zeros(rows.numel(), width)
    values.view(-1)[place * width + elements.indices % width] = elements.values
    return Sparse(rows, values, total.numel)


@runtime_checkable
class Lossy(Protocol):
    """A collective that may prune or round."""

    def lossless(self) -> Collective:
        """The same without pruning or rounding."""


def row_route(pipeline: Pipeline) -> tuple[Collective, AnyCodec]:
    """How COO gradients travel under a recipe: whole, by its `coo` or else its own collective.

    Its codec comes along where that returns the very bits; one that would round gives way to the
    raw one, since there is no residual to catch what it loses. A linear codec is what the recipe
    was chosen for, and stays.
    """
    collective = pipeline.coo or pipeline.collective
    if isinstance(collective, Lossy):
        collective = collective.lossless()
    codec = pipeline.codec
    fits = codec is not None and codec.kind == collective.takes
    if fits and not (isinstance(codec, Codec) and not is_exact(codec)):
        return collective, codec
    return collective, _PLAIN[collective.takes]


@dataclass(slots=True)
class RowUnit:
    """One COO gradient over many steps: which step it is, and what it has cost."""

    name: str
    pipeline: Pipeline
    meter: Meter
    step: int = 0
    width: int = 1  # of a row

    def average(
        self, grad: Tensor, comm: GroupCommunicator, seed: int, nodes: Nodes | None = None
    ) -> Tensor:
        """The mean over the ranks, as a new coalesced COO tensor."""
        coo = grad.coalesce()
        mine = from_coo(coo.to(accumulator(coo.dtype)))
        self.width = mine.width
        ctx = StepContext(self.name, self.step, seed, comm, phase=self.meter.phase)
        sent, received = comm.traffic.sent, comm.traffic.received
        rows = self._sum(mine, ctx) if nodes is None else self._sum_in_nodes(mine, ctx, nodes)
        mean = to_coo(Sparse(rows.indices, rows.values / comm.size, rows.numel), coo)
        dense_bytes = 2 * coo.shape.numel() * coo.dtype.itemsize * (comm.size - 1) // comm.size
        self.meter.count(
            mine, comm.traffic.sent - sent, comm.traffic.received - received, dense_bytes
        )
        self.step += 1
        return mean.to(coo.dtype)

    def _sum(self, mine: Sparse, ctx: StepContext) -> Sparse:
        """Over the ranks of the context, by the recipe's way."""
        collective, codec = row_route(self.pipeline)
        try:
            return as_rows(collective.exchange(mine, codec, ctx).total, mine.width)
        except ExchangeError as error:
            name = type(collective).__name__
            raise ExchangeError(f"{name} of {self.name!r}, step {self.step}: {error}") from error

    def _sum_in_nodes(self, mine: Sparse, ctx: StepContext, nodes: Nodes) -> Sparse:
        """Gathered inside each node, exchanged by the leaders, and handed out."""
        inside = replace(ctx, comm=nodes.inside)
        rows = as_rows(AllGather().exchange(mine, Pair(), inside).total, mine.width)
        if nodes.between is not None:
            rows = self._sum(rows, replace(ctx, comm=nodes.between))
        with ctx.phase("inside"):
            count = nodes.hand_out(rows.indices.new_tensor([rows.indices.numel()]))
            if not nodes.leads:
                indices = rows.indices.new_empty(int(count))
                values = rows.values.new_empty(indices.numel(), mine.width)
                rows = Sparse(indices, values, mine.numel)
            indices, values = rows.indices.contiguous(), rows.values.contiguous()
            return Sparse(nodes.hand_out(indices), nodes.hand_out(values), rows.numel)

    def cost(self) -> Cost:
        """What the tensor has cost so far."""
        return self.meter.costs()[0]


_PLAIN: dict[CodecKind, AnyCodec] = {"bytes": Pair(), "linear": CountSketch(), "none": None}
