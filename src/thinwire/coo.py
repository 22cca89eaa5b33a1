"""PyTorch's COO tensors as `Sparse` and back."""

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.types import Sparse


def from_coo(coo: Tensor) -> Sparse:
    """The rows of a coalesced COO tensor, or its elements if all dimensions are sparse."""
    if coo.sparse_dim() == 1 and coo.dim() > 1:
        width = coo.shape[1:].numel()
        return Sparse(coo.indices()[0], coo.values().reshape(-1, width), coo.shape[0] * width)
    if coo.dense_dim() == 0:
        strides = torch.empty(coo.shape, device="meta").stride()
        flat = sum(
            (index * stride for index, stride in zip(coo.indices(), strides, strict=True)),
            torch.zeros_like(coo.indices()[0]),
        )
        return Sparse(flat, coo.values(), coo.shape.numel())
    raise RecipeError(
        f"a COO tensor with {coo.sparse_dim()} sparse and {coo.dense_dim()} dense dimensions "
        "holds neither rows nor single elements"
    )


def to_coo(s: Sparse, like: Tensor) -> Tensor:
    """The inverse of `from_coo`."""
    if like.dense_dim() == 0:
        indices = torch.stack(torch.unravel_index(s.indices, like.shape))
        return torch.sparse_coo_tensor(indices, s.values, like.shape).coalesce()
    rows = _by_rows(s, like.shape[1:].numel())
    values = rows.values.view(-1, *like.shape[1:])
    return torch.sparse_coo_tensor(rows.indices[None], values, like.shape).coalesce()


def _by_rows(s: Sparse, width: int) -> Sparse:
    """The same elements as whole rows, with zeros where a row has none."""
    if s.values.dim() == 2 and s.width == width:
        return s
    elements = s.elements().sorted()
    rows, place = torch.unique_consecutive(elements.indices // width, return_inverse=True)
    values = elements.values.new_zeros(rows.numel(), width)
    values.view(-1)[place * width + elements.indices % width] = elements.values
    return Sparse(rows, values, s.numel)
