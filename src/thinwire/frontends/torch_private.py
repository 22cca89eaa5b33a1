"""What PyTorch shows only by private names: all of it that DDP's front end and others use.

What FSDP's uses is in `fsdp_private`, which takes long to import.
"""

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket as GradBucket  # typed only there
from torch._C._distributed_c10d import PrefixStore as PrefixStore
from torch._C._distributed_c10d import TCPStore as TCPStore
from torch._C._profiler import _ExperimentalConfig
from torch.distributed._composable.contract import _get_registry
from torch.nn.parallel import DistributedDataParallel


def has_hook(ddp: DistributedDataParallel) -> bool:
    """Whether a communication hook was registered."""
    return bool(ddp._comm_hooks)


def calls_hooks(optimizer: object) -> bool:
    """Whether hooks are called around its steps: not where torch has not initialised it."""
    step = getattr(type(optimizer), "step", None)
    return hasattr(step, "hooked") and hasattr(optimizer, "_optimizer_step_post_hooks")


def is_inner_step(optimizer: torch.optim.Optimizer) -> bool:
    """Asked by a hook: whether the step is inside of another of the same optimiser.

    A subclass's step may call its parent's, which calls the hooks too, if an optimiser of that
    class was ever made.
    """
    frame, steps = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        steps += frame.f_code is _AROUND_STEPS and frame.f_locals["self"] is optimizer
    return steps > 1


_AROUND_STEPS = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__


def composed_by(module: nn.Module) -> set[str]:
    """The names of the functions, such as "replicate", that have made the module what it is."""
    return set(_get_registry(module) or ())


def after_backward(callback: Callable[[], None]) -> None:
    """Call when the backward pass is over, after what was queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def backward_pass() -> int:
    """Which backward pass this is, where one is under way: a number that does not come again."""
    return torch._C._current_graph_task_id()


def all_threads() -> _ExperimentalConfig:
    """For `torch.profiler.profile(experimental_config=...)`, which else sees the caller's alone."""
    return _ExperimentalConfig(profile_all_threads=True)
