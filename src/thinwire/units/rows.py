"""PyTorch's COO tensors: as `Sparse` and back, and added up over the ranks.

`nn.Embedding(sparse=True)` and `EmbeddingBag` have gradients of this form: they are sparse by
themselves, so that there is nothing to select, and nothing left over to keep.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.codec import Pair
from thinwire.collective import AllGather
from thinwire.collective._run import run_exchange
from thinwire.comm import Nodes, Traffic
from thinwire.pipeline import Pipeline
from thinwire.types import (
    Communicator,
    ExchangeContext,
    Selection,
    Sparse,
    StepContext,
    TensorSpec,
)
from thinwire.units.clock import StepClock
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


@dataclass(slots=True)
class RowUnit:
    """One COO gradient over many steps: which step it is, and what it has cost."""

    spec: TensorSpec
    pipeline: Pipeline
    meter: Meter
    step: int = 0
    width: int = 1  # of a row

    @classmethod
    def of(
        cls,
        name: str,
        grad: Tensor,
        pipeline: Pipeline,
        step: int,
        clock: StepClock | None = None,
    ) -> "RowUnit":
        """The unit of a gradient that goes on at a step."""
        numel, shape = grad.shape.numel(), tuple(grad.shape)
        spec = TensorSpec(name, numel, grad.dtype, grad.device, (shape,))
        return cls(spec, pipeline, Meter((numel,), grad.dtype, grad.device, clock), step)

    def context(self, seed: int, comm: Communicator) -> StepContext:
        """The address of this step."""
        shapes = self.spec.shapes
        return StepContext(
            self.spec.name, self.step, seed, comm, shapes=shapes, phase=self.meter.phase
        )

    def sum(self, mine: Sparse, ctx: StepContext, nodes: Nodes | None) -> Sparse:
        """The rows of all ranks, added up by the recipe; inside nodes first where there are any."""
        self.width = mine.width
        if nodes is None:
            return as_rows(self.pipeline.sum_rows(mine, ctx), mine.width)
        inside = ExchangeContext.of(replace(ctx, comm=nodes.inside))
        rows = as_rows(run_exchange(AllGather(), mine, Pair(), inside).total, mine.width)
        if nodes.between is not None:
            between = replace(ctx, comm=nodes.between)
            rows = as_rows(self.pipeline.sum_rows(rows, between), mine.width)
        with ctx.phase("inside"):
            count = nodes.hand_out(rows.indices.new_tensor([rows.indices.numel()]))
            if not nodes.leads:
                indices = rows.indices.new_empty(int(count))
                values = rows.values.new_empty(indices.numel(), mine.width)
                rows = Sparse(indices, values, mine.numel)
            indices, values = rows.indices.contiguous(), rows.values.contiguous()
            return Sparse(nodes.hand_out(indices), nodes.hand_out(values), rows.numel)

    def count(self, selection: Selection | None, moved: Traffic, ranks: int) -> None:
        """Enter a finished step into the statistics, and move on to the next."""
        self.meter.count(selection, moved, ranks)
        self.step += 1

    def cost(self) -> Cost:
        """What the tensor has cost so far."""
        return self.meter.costs()[0]
