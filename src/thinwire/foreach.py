"""Many tensors at a time: operations in one launch, which PyTorch has by private names alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

add = torch._foreach_add
add_ = torch._foreach_add_
addcmul_ = torch._foreach_addcmul_
copy_ = torch._foreach_copy_
mul = torch._foreach_mul
mul_ = torch._foreach_mul_


def in_a_row(tensors: Sequence[Tensor]) -> Tensor | None:
    """All of these as one flat view, if they lie in memory one after the other, as in a bucket."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != end or tensor.dtype != first.dtype:
            return None
        end += tensor.nbytes
    storage = first.untyped_storage()
    if end > storage.data_ptr() + storage.nbytes():
        return None  # neighbours by chance
    return first.as_strided((sum(t.numel() for t in tensors),), (1,))
