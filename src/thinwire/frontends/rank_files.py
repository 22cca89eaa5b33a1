"""One file a rank beside a checkpoint: what waits on a rank is known to it alone."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from thinwire.engine.checkpoint import accepted_by_all
from thinwire.errors import DisagreementError, StateError
from thinwire.files import whole
from thinwire.frontends.handle import Handle


def save(folder: str | Path, handles: Sequence[Handle]) -> None:
    """Write this rank's states into a folder; every rank must call."""
    if not handles:
        return
    folder, (rank, size) = Path(folder), _place()
    folder.mkdir(parents=True, exist_ok=True)
    with whole(_file(folder, rank, size)) as beside:
        torch.save([handle.state_dict() for handle in handles], beside)
    if rank == 0:  # what a run with another number of ranks has left
        for file in folder.glob("thinwire-*.pt"):
            if not file.stem.endswith(f"-of-{size}"):
                file.unlink()


def load(folder: str | Path, handles: Sequence[Handle]) -> None:
    """Go on from what the ranks wrote, also if there were more or fewer of them."""
    if not handles:
        return
    folder = Path(folder)
    for handle in handles:
        handle.synchronizer.end_step()  # its worker talks to the same ranks
    found = accepted_by_all(handles[0].synchronizer.everyone, partial(_find, folder, handles))
    if not found.by_rank:
        warnings.warn(
            f"{folder} has no thinwire-*.pt: it was saved without thinwire, and what waits to be "
            "sent starts at nothing",
            stacklevel=2,
        )
        return
    before = [handle.state_dict() for handle in handles[:-1]]
    for index, handle in enumerate(handles):
        states = [of_models[index] for of_models in found.by_rank]
        try:
            handle.load_state_dict(states[0] if found.own else states)
        except (StateError, DisagreementError):  # on all ranks; of several models all or none
            for loaded, state in zip(handles[:index], before, strict=False):
                loaded.load_state_dict(state)
            raise


@dataclass(frozen=True, slots=True)
class _Found:
    """The states of all models, by the rank that saved them: of this rank alone, or of all."""

    by_rank: list[list[Any]]
    own: bool

    @property
    def summary(self) -> str:
        return f"a file of its own: {self.own}" if self.by_rank else "no file"


def _find(folder: Path, handles: Sequence[Handle]) -> _Found:
    """This rank's file, or all: of another number of ranks, or of nodes of another size."""
    own, there_are = _file(folder, *_place()), sorted(folder.glob("thinwire-*-of-*.pt"))
    if own in there_are:
        states = _read(own, len(handles))
        nodes = [handle.synchronizer.node_size for handle in handles]
        if all(s.get("node_size", n) == n for s, n in zip(states, nodes, strict=True)):
            return _Found([states], own=True)
    return _Found([_read(file, len(handles)) for file in there_are], own=False)


def _read(file: Path, models: int) -> list[Any]:
    try:
        states = torch.load(file, weights_only=True)
    except Exception as error:  # each way to be cut off has another
        raise StateError(f"{file} cannot be read: {error!r}") from error
    if not isinstance(states, list) or not all(isinstance(state, dict) for state in states):
        raise StateError(f"{file} has a {type(states).__name__}, no list of states")
    if len(states) != models:
        raise StateError(f"{file} has the states of {len(states)} models, here are {models}")
    return states


def remove(folder: str | Path) -> None:
    """Remove the files that `save` wrote, and the folder where nothing else is in it."""
    folder = Path(folder)
    for file in folder.glob("thinwire-*.pt"):
        file.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _file(folder: Path, rank: int, size: int) -> Path:
    return folder / f"thinwire-{rank}-of-{size}.pt"
