"""What PyTorch shows only by private names: all of it that the front ends use is here."""

from torch import nn
from torch.distributed._composable.contract import _get_registry
from torch.nn.parallel import DistributedDataParallel


def has_hook(ddp: DistributedDataParallel) -> bool:
    """Whether a communication hook was registered."""
    return bool(ddp._comm_hooks)


def composed_by(module: nn.Module) -> set[str]:
    """The names of the functions, such as "replicate", that have made the module what it is."""
    return set(_get_registry(module) or ())
