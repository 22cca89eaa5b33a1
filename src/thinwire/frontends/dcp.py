"""Checkpoints by `torch.distributed.checkpoint`: one entry a rank, for any number that loads.

    from thinwire.frontends.dcp import entry, load

    dcp.save({"model": model.state_dict(), **entry(handle)}, checkpoint_id=folder)
    load(handle, folder)

An entry is one tensor of bytes (`engine/saved.py`). Entries of the same name would be taken for the
same tensor on all ranks, and all but one left out. So in the middle of a round of local steps
(`outer`), where models and their optimisers differ by rank, these need names of their own too.
"""

from dataclasses import dataclass
from functools import partial
from os import PathLike

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.storage import StorageReader

from thinwire.engine.checkpoint import accepted_by_all
from thinwire.engine.saved import State, pack, unpack
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import StateError
from thinwire.frontends.handle import Handle
from thinwire.frontends.local.handle import Outer

PREFIX = "thinwire."


def entry(handle: Handle | Outer | Synchronizer) -> dict[str, Tensor]:
    """This rank's state under a name of its own, for `dcp.save` and `dcp.async_save`."""
    return {_prefix(handle) + _place(handle): pack(handle.state_dict())}


def load(
    handle: Handle | Outer | Synchronizer,
    checkpoint_id: str | PathLike[str] | None = None,
    *,
    storage_reader: StorageReader | None = None,
    process_group: dist.ProcessGroup | None = None,
) -> None:
    """Go on from a checkpoint, on all ranks together.

    As many ranks as saved, in nodes as before, read their own entry, others all of them: what waits
    is kept.
    """
    if isinstance(handle, Outer):
        handle.stats()  # waits for the exchange that is under way
    _synchronizer(handle).end_step()
    prefix, sync = _prefix(handle), _synchronizer(handle)
    reader = storage_reader or FileSystemReader(checkpoint_id)  # type: ignore[arg-type]
    entries = accepted_by_all(sync.everyone, partial(_find, reader, prefix)).entries
    own = prefix + _place(handle)
    if own in entries and len(entries) == sync.everyone.size:
        mine = {own: entries[own]}
        dcp_load(mine, storage_reader=reader, process_group=process_group)
        opened = accepted_by_all(sync.everyone, lambda: _Opened(unpack(mine[own])))
        if opened.node_size == sync.node_size:
            handle.load_state_dict(opened.state)
            return
    dcp_load(entries, storage_reader=reader, process_group=process_group)
    handle.load_state_dict(list(entries.values()))


@dataclass(frozen=True, slots=True)
class _Found:
    """Room for each entry of the checkpoint that is ours: the same on all ranks, if all see it."""

    entries: dict[str, Tensor]

    @property
    def summary(self) -> str:
        return f"a checkpoint with {', '.join(sorted(self.entries))}"


def _find(reader: StorageReader, prefix: str) -> _Found:
    try:
        found = reader.read_metadata().state_dict_metadata
    except Exception as error:  # each storage has its own
        raise StateError(f"the checkpoint cannot be read: {error!r}") from error
    entries = {
        name: torch.empty(entry.size, dtype=torch.uint8)
        for name, entry in found.items()
        if name.startswith(f"{prefix}rank") and isinstance(entry, TensorStorageMetadata)
    }
    if not entries:
        raise StateError(f"the checkpoint has no entry {prefix}rank0: save entry(handle) with it")
    return _Found(entries)


@dataclass(frozen=True, slots=True)
class _Opened:
    """This rank's state; which others must be read too is the same on all ranks."""

    state: State

    @property
    def node_size(self) -> int:
        found: int = self.state.get("exchange", self.state).get("node_size", 1)
        return found

    @property
    def summary(self) -> str:
        return f"saved with nodes of {self.node_size} ranks"


def _synchronizer(handle: Handle | Outer | Synchronizer) -> Synchronizer:
    return handle if isinstance(handle, Synchronizer) else handle.synchronizer


def _prefix(handle: Handle | Outer | Synchronizer) -> str:
    """Of several groups of peers, each with a model of its own, each has a rank 0."""
    first = _synchronizer(handle).everyone.first
    return f"{PREFIX}from{first}." if first else PREFIX


def _place(handle: Handle | Outer | Synchronizer) -> str:
    return handle.place if isinstance(handle, Handle) else f"rank{_synchronizer(handle).comm.rank}"
