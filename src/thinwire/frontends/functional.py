"""One sparse allreduce, without state: for those who keep their own residuals."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from thinwire.comm import GroupCommunicator
from thinwire.cookbook import resolve
from thinwire.pipeline import Pipeline
from thinwire.types import Selection, Sparse, StepContext, TensorSpec, accumulator
from thinwire.units.rows import from_coo, row_route, to_coo

T = TypeVar("T", Tensor, Sparse)
_communicators: dict[dist.ProcessGroup | None, GroupCommunicator] = {}


def sparse_all_reduce(
    x: T,
    recipe: Pipeline | str | Mapping[str, Any],
    group: dist.ProcessGroup | None = None,
    *,
    seed: int = 0,
    step: int = 0,
) -> T:
    """The sum of `x` over the ranks, in the form that `x` came in.

    A dense tensor is sparsified by the recipe first; `Sparse` and COO tensors (of whole rows or
    single elements) are summed as they are. The recipe's feedback is not used: what is not
    selected is not sent.
    """
    pipeline = resolve(recipe)
    comm = _communicator(group)
    ctx = StepContext(tensor="sparse_all_reduce", step=step, seed=seed, comm=comm)
    if isinstance(x, Sparse):
        return _as_sparse(pipeline.collective.exchange(x, pipeline.codec, ctx).total)
    if x.is_sparse:
        coo = x.coalesce()
        collective, codec = row_route(pipeline)
        return to_coo(collective.exchange(from_coo(coo), codec, ctx).total, coo)
    flat = x.reshape(-1).to(accumulator(x.dtype))
    spec = TensorSpec(ctx.tensor, flat.numel(), flat.dtype, flat.device)
    chosen = pipeline.sparsifier.select(flat, pipeline.sparsifier.init(spec), ctx)
    total = pipeline.collective.exchange(chosen, pipeline.codec, ctx).total
    dense = total.to_dense() if isinstance(total, Sparse) else total
    return dense.to(x.dtype).view(x.shape)


def _as_sparse(total: Selection) -> Sparse:
    if isinstance(total, Sparse):
        return total
    indices = total.nonzero().squeeze(1)
    return Sparse(indices, total[indices], total.numel())


def _communicator(group: dist.ProcessGroup | None) -> GroupCommunicator:
    """Kept by group: making one is itself a collective call."""
    key = group or (dist.group.WORLD if dist.is_initialized() else None)
    if key not in _communicators:
        _communicators[key] = GroupCommunicator(group)
    return _communicators[key]
