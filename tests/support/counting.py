"""What a rank asks of the host, of NCCL and of Gloo, counted while a block runs."""

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup

# All that moves bytes, by the names of several versions of PyTorch; each call is one launch.
OPERATIONS = (
    "allreduce", "allreduce_coalesced", "allgather", "_allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "all_gather_single", "all_gather_single_coalesced",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single", "reduce_scatter_single_coalesced", "alltoall", "alltoall_base",
    "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "send", "recv",
    "recv_anysource", "barrier",
)  # fmt: skip


@dataclass
class Counts:
    """Launches and messages by name, and host synchronisations by where they came from."""

    nccl: Counter[str] = field(default_factory=Counter)
    gloo: Counter[str] = field(default_factory=Counter)
    syncs: Counter[str] = field(default_factory=Counter)


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts of all threads of this process.

    Operations between the start and the end of coalescing are one launch. Synchronisations are
    those that PyTorch warns of, and waits for events and for the whole device, of which it does
    not.
    """
    counts, open_groups, lock = Counts(), set(), threading.Lock()

    def count(group: ProcessGroup, name: str) -> None:
        kind = counts.gloo if dist.get_backend(group) == "gloo" else counts.nccl
        with lock:
            if group not in open_groups:
                kind[name] += 1

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            count(self, name)
            return method(self, *args, **kwargs)

        return call

    def coalescing(method: Callable[..., Any], begins: bool) -> Callable[..., Any]:
        def call(self: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            if begins:
                count(self, "coalesced")
                open_groups.add(self)
            else:
                open_groups.discard(self)
            return method(self, *args, **kwargs)

        return call

    with ExitStack() as stack:
        for name in OPERATIONS:
            if hasattr(ProcessGroup, name):
                method = getattr(ProcessGroup, name)
                stack.enter_context(patch.object(ProcessGroup, name, counting(name, method)))
        for name, begins in (("_start_coalescing", True), ("_end_coalescing", False)):
            method = coalescing(getattr(ProcessGroup, name), begins)
            stack.enter_context(patch.object(ProcessGroup, name, method))
        if torch.cuda.is_available():
            stack.enter_context(_counted_syncs(counts.syncs))
        yield counts


@contextmanager
def _counted_syncs(syncs: Counter[str]) -> Iterator[None]:
    def waiting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            syncs[name] += 1
            return method(*args, **kwargs)

        return call

    waits = (torch.cuda.Event, "synchronize"), (torch.cuda, "synchronize")
    mode = torch.cuda.get_sync_debug_mode()
    with ExitStack() as stack:
        for owner, name in waits:
            method = waiting(f"{owner.__name__}.{name}", getattr(owner, name))
            stack.enter_context(patch.object(owner, name, method))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            for warning in caught:
                if "synchronizing CUDA operation" in str(warning.message):
                    syncs[f"{'/'.join(warning.filename.split('/')[-2:])}:{warning.lineno}"] += 1
