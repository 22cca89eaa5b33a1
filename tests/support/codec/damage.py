"""Bytes that lie, and what reading them asks for."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from thinwire.kernels.checksum import checksum


def as_wire(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0).byte()


def resealed(data: bytes) -> Tensor:
    """The same bytes with a checksum that fits them: a lie instead of an accident."""
    wire = as_wire(data)
    words = wire.view(torch.int64)
    field = 6
    words[field] = checksum(words[:field]) + checksum(words[field + 1 :], first=field + 1)
    return wire


class LargestResult(TorchDispatchMode):
    """Watches how many elements the largest tensor has that any operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numel = max(self.numel, out.numel())
        return out
