"""One sparse allreduce, without state: for those who keep their own residuals."""

from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch import Tensor

from thinwire import cookbook
from thinwire.by_name import ByName
from thinwire.comm import GroupCommunicator, check_initialized
from thinwire.engine.given import on_host
from thinwire.errors import RecipeError
from thinwire.pipeline import Pipeline
from thinwire.types import Selection, Sparse, StepContext, accumulator
from thinwire.units.rows import from_coo, to_coo

T = TypeVar("T", Tensor, Sparse)
_communicators = WeakKeyDictionary[dist.ProcessGroup, GroupCommunicator]()


@on_host
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

    Where ranks come with another recipe, seed, step or form of `x`, all of them raise
    `DisagreementError` before anything is sent.
    """
    pipeline = cookbook.recipe(recipe)
    if isinstance(pipeline, ByName):
        raise RecipeError("sparse_all_reduce() has no parameter's name: pass one recipe")
    kind = x.values.dtype if isinstance(x, Sparse) else x.dtype
    if not kind.is_floating_point:
        raise RecipeError(f"sparse_all_reduce() adds up floating point numbers, not {kind}")
    comm = _communicator(group)
    comm.agree("the call", f"{pipeline!r}, {seed=}, {step=}, {_form(x)}")
    ctx = StepContext("sparse_all_reduce", step, seed, comm)
    if isinstance(x, Sparse):
        return _as_sparse(pipeline.sum_once(x, ctx))
    if x.is_sparse:
        coo = x.coalesce()
        return to_coo(pipeline.sum_rows(from_coo(coo), ctx), coo)
    total = pipeline.sum_once(x.reshape(-1).to(accumulator(x.dtype)), ctx)
    dense = total.to_dense() if isinstance(total, Sparse) else total
    return dense.to(x.dtype).view(x.shape)


def _form(x: Tensor | Sparse) -> str:
    if isinstance(x, Sparse):
        return f"Sparse of {x.numel} elements, {x.width} in a row, {x.values.dtype}"
    dims = f" of {x.sparse_dim()} sparse dimensions" if x.is_sparse else ""
    return f"{tuple(x.shape)} {x.dtype} {x.layout}{dims}"


def _as_sparse(total: Selection) -> Sparse:
    if isinstance(total, Sparse):
        return total
    indices = total.nonzero().squeeze(1)
    return Sparse(indices, total[indices], total.numel())


def _communicator(group: dist.ProcessGroup | None) -> GroupCommunicator:
    """Kept for as long as its group is there: making one is itself a collective call."""
    check_initialized()
    key = group or (dist.group.WORLD if dist.is_initialized() else None)
    if key is None:
        return GroupCommunicator()
    if key not in _communicators:
        _communicators[key] = GroupCommunicator(group)
    return _communicators[key]
