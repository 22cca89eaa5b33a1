"""All ranks begin with one model, the first rank's."""

import torch
from torch import nn

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
        comm.broadcast(tensor)
