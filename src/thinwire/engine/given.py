"""What callers hand over as gradients: how the ranks compare it, and what is none."""

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def on_host(call: Callable[P, R]) -> Callable[P, R]:
    """Inside, a tensor that names no device is on the host, also after `set_default_device`."""

    @wraps(call)
    def as_by_default(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.get_default_device().type == "cpu":
            return call(*args, **kwargs)
        with torch.device("cpu"):
            return call(*args, **kwargs)

    return as_by_default


def check_named(grads: object) -> None:
    """Refuse a list and the like: the state of each tensor is kept by its name."""
    if not isinstance(grads, Mapping):
        kind = type(grads).__name__
        raise TypeError(f"average_all() takes gradients by name, as a dict, not as {kind}")


def form_of(grad: object) -> str:
    """All that must be the same on every rank."""
    if not isinstance(grad, Tensor):
        return type(grad).__name__
    expanded = ", expanded" if is_expanded(grad) else ""
    return f"{tuple(grad.shape)} {grad.dtype} {grad.layout}{expanded}"


def no_gradient(name: str, grad: object, backend: str) -> str:
    """Why this cannot be averaged, and what to do; empty where it can."""
    if grad is None:
        return (
            f"{name!r} has no gradient: the backward pass did not reach it; leave it out, on "
            "every rank alike"
        )
    if not isinstance(grad, Tensor):
        return (
            f"{name!r} is of type {type(grad).__name__}, not a tensor; of a NumPy array "
            "torch.from_numpy(array) makes one that shares its memory"
        )
    if is_dtensor(grad):
        return (
            f"{name!r} is a DTensor: pass grad.to_local() with the group of "
            "ranks that hold the same shard, or the whole model to thinwire.compress()"
        )
    if backend == "nccl" and not grad.is_cuda:
        return (
            f"{name!r} is on the {grad.device.type} and the group is NCCL's: move the model to its "
            'GPU, or call init_process_group("gloo")'
        )
    if grad.layout not in (torch.strided, torch.sparse_coo):
        return f"{name!r} is {grad.layout}: pass grad.to_sparse_coo(), or grad.to_dense()"
    if is_expanded(grad):
        return (
            f"{name!r} was expanded, so that elements share memory and no update fits into it: "
            "pass grad.contiguous()"
        )
    if not grad.is_floating_point():
        return f"{name!r} is {grad.dtype}; gradients must be floating point"
    return ""


def is_expanded(tensor: Tensor) -> bool:
    """Whether one element in memory stands for several, as in some that autograd.grad() gives."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return False
    return any(not step and n > 1 for step, n in zip(tensor.stride(), tensor.shape, strict=True))


def without_graph(grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same memory. Autograd would not let a leaf that requires gradients be written to."""
    return {n: g.detach() if getattr(g, "requires_grad", False) else g for n, g in grads.items()}


def is_dtensor(tensor: Tensor) -> bool:
    """Whoever has one has imported its module, which takes a second: nobody else need."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def as_real(tensor: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers, as DDP has its gradient; others as they are."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor
