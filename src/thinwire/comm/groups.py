"""Process groups of our own: how they are made, and how long they wait for a peer."""

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from thinwire.errors import ThinwireError

DEFAULT_TIMEOUT = timedelta(minutes=5)
_NOBODY_S = 2**31 - 1  # a tag
_GRACE = timedelta(minutes=5)  # until NCCL's own watchdog looks, where ours did not


def check_initialized() -> None:
    """Refuse to train alone where a launcher started several processes.

    Without `torch.distributed` a rank's own gradient is the mean; that is meant for one process.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdecimal() and int(world) > 1 and not dist.is_initialized():
        raise ThinwireError(
            f"{world} processes were started (WORLD_SIZE) and torch.distributed is not "
            "initialised, so that each would train alone: call "
            "torch.distributed.init_process_group() first"
        )


def own_group(ranks: list[int], rank: int, backend: str, timeout: timedelta) -> dist.ProcessGroup:
    """A new group that only its members make, under a name that none before it had.

    `new_group` would take the name from the ranks and the number of groups there are: ranks that
    know different numbers of groups then wait for each other for ever, and after a destroy a name
    comes again and finds stale addresses. Here every member counts in the store, so the numbers
    agree as long as the members' calls do.
    """
    store = c10d._get_default_store()
    members = "-".join(map(str, ranks))
    serial = store.add(f"thinwire/{members}/{backend}/{rank}", 1)
    name: Any = f"thinwire/{members}/{backend}/{serial}"
    limit = timeout if backend == "gloo" else timeout + _GRACE
    group: dist.ProcessGroup
    with _own_error_handling() if backend == "nccl" else nullcontext():
        group, _ = c10d._new_process_group_helper(
            len(ranks),
            rank,
            ranks,
            c10d.Backend(backend),
            store,
            name,
            backend_options=_options(backend, limit),
            timeout=limit,
        )
    c10d._world.pg_group_ranks[group] = {member: i for i, member in enumerate(ranks)}
    return group


def group_at(
    store: c10d.Store, name: str, rank: int, size: int, timeout: timedelta
) -> dist.ProcessGroup:
    """A group of Gloo whose members know a store and a name, whatever other groups they are in."""
    group: dist.ProcessGroup
    group, _ = c10d._new_process_group_helper(
        size, rank, [], c10d.Backend("gloo"), store, cast(Any, name), timeout=timeout
    )
    c10d._world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


def let_go(group: dist.ProcessGroup) -> None:
    """End a group, unless that was done: `destroy_process_group()` ends all there are."""
    if group in c10d._world.pg_map:
        dist.destroy_process_group(group)


def when_dropped(
    owner: object, action: Callable[..., object], *arguments: object
) -> Callable[[], object]:
    """Have something done once nobody has `owner` any more; to be called if it no longer shall be.

    Until then the arguments are held. At the end of the interpreter nothing is done.
    """
    finalizer = weakref.finalize(owner, action, *arguments)
    finalizer.atexit = False
    return finalizer.detach


def abort(groups: Sequence[dist.ProcessGroup]) -> None:
    """End what groups of NCCL have under way, on this rank alone.

    All of them in one go: ending one waits for the device, which the others keep busy for as long
    as they wait for a peer that is gone.
    """
    backends: list[Any] = [group._get_backend(torch.device("cuda")) for group in groups]
    backends[0]._group_start()
    for backend in backends:
        backend.abort()
    backends[0]._group_end()


def hang_up(group: dist.ProcessGroup, peers: Iterable[int]) -> None:
    """Close the connections of a Gloo group, so that nobody waits for this rank any longer.

    Gloo has no call for it, but closes all of them when a wait is too long. So we wait for what
    nobody sends; of a peer that is gone already this ends at once and closes nothing.
    """
    for peer in peers:
        with suppress(RuntimeError):
            work = dist.irecv(
                torch.empty(1, device="cpu"), group=group, group_src=peer, tag=_NOBODY_S
            )
            if work is not None:
                work.wait(timedelta(milliseconds=1))


def _options(backend: str, timeout: timedelta) -> Any:
    """NCCL's kernels go before those of the backward pass: others wait for what they bring."""
    if backend != "nccl":
        return None
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options._timeout = timeout
    return options


@contextmanager
def _own_error_handling() -> Iterator[None]:
    """NCCL's watchdog ends the process at a timeout; a group of ours raises an error instead."""
    variable = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    before = os.environ.get(variable)
    os.environ[variable] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def timeout_of(group: dist.ProcessGroup | None) -> timedelta:
    """How long the user's own group waits for a peer. PyTorch shows it only on the backend."""
    group = group or dist.group.WORLD
    assert group is not None
    for device in ("cuda", "cpu"):
        try:
            timeout: timedelta = group._get_backend(torch.device(device)).options._timeout
            return timeout
        except (RuntimeError, AttributeError):
            continue
    return DEFAULT_TIMEOUT
