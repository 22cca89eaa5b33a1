"""All ranks begin with one model, the first rank's."""

import torch
from torch import Tensor, nn

from thinwire.comm import GroupCommunicator


@torch.no_grad()
def begin_alike(model: nn.Module, comm: GroupCommunicator, what: str, more: str = "") -> None:
    """Give all ranks the first one's parameters and buffers, if they are of the same model.

    `more` must be the same, too; `what` says in an error which all of it is.
    """
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    form = "; ".join(f"{n}: {tuple(t.shape)} {t.dtype}" for n, t in tensors.items())
    comm.agree(what, f"{more}{form}")
    for tensor in tensors.values():
        own = _not_expanded(tensor)
        own.copy_(comm.broadcast(own.contiguous()))  # a backend takes memory as it lies there


def _not_expanded(tensor: Tensor) -> Tensor:
    """The part of a tensor that has memory of its own, and stands for all of it."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension]:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor
