"""Which tensors share a unit."""

from collections.abc import Mapping

import torch
from torch import Tensor

BUCKET_BYTES = 25 * 2**20  # DDP's own bucket size


def grouped(grads: Mapping[str, Tensor], unit: str, whole: bool = False) -> list[dict[str, Tensor]]:
    """Tensors that share a unit, in order; a unit has one dtype and one device.

    `whole`: they are one bucket, which is not cut.
    """
    kinds: dict[tuple[torch.dtype, torch.device], list[dict[str, Tensor]]] = {}
    filled: dict[tuple[torch.dtype, torch.device], int] = {}
    for name, grad in grads.items():
        kind = (grad.dtype, grad.device)
        groups = kinds.setdefault(kind, [])
        full = filled.get(kind, 0) + grad.nbytes > BUCKET_BYTES
        if not groups or unit == "tensor" or (unit == "bucket" and full and not whole):
            groups.append({})
            filled[kind] = 0
        groups[-1][name] = grad
        filled[kind] += grad.nbytes
    return [group for groups in kinds.values() for group in groups]
