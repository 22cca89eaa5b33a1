"""One file a rank beside a checkpoint: what waits on a rank is known to it alone."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from thinwire.errors import RecipeError
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
    own = _file(folder, *_place())
    others = sorted(folder.glob("thinwire-*-of-*.pt"))
    if not others:
        warnings.warn(
            f"{folder} has no thinwire-*.pt: it was saved without thinwire, and what waits to be "
            "sent starts at nothing",
            stacklevel=2,
        )
        return
    by_rank: list[list[Any]] = [
        torch.load(file, weights_only=True) for file in ([own] if own in others else others)
    ]
    if {len(states) for states in by_rank} != {len(handles)}:
        raise RecipeError(
            f"{folder} has the states of {len(by_rank[0])} models, and there are {len(handles)}"
        )
    for index, handle in enumerate(handles):
        states = [states[index] for states in by_rank]
        handle.load_state_dict(states[0] if own in others else states)


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
