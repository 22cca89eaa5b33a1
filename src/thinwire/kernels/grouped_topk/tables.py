"""What the kernels on CUDA must know of `Groups`: put on the device once, and kept there.

A *tile* is what one program reads: it begins at a multiple of a row, so that 16 bytes can be loaded
at once, and has elements of one run only. The tiles of groups that choose come first, each group's
own side by side and in order.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels._triton import ROW
from thinwire.kernels.exact_topk.sample import rooms
from thinwire.kernels.grouped_topk.groups import Groups
from thinwire.kernels.kept import kept

Array = NDArray[np.int64]

PIECE = tl.constexpr(1024)  # candidates that a program looks at
MOST = 1 << 32  # elements: an index and a place in the result share a word
WASTE = 1.25  # elements that tiles have room for, beside those they have, before they are smaller

# Of a tile; OWNER is the number of its group among those that choose. A tile of another group has
# AFTER: behind how many tiles of the only group that chooses it lies, or -1 if OUT is its place.
TILE_FIELDS = tl.constexpr(8)
START, LOW, HIGH, GROUP = (tl.constexpr(i) for i in range(4))
OUT, OWNER, AFTER, GIVES = (tl.constexpr(i) for i in range(4, 8))
# Of a group that chooses: its number among all, k, where its candidates are and for how many there
# is room, its first tile and how many it has.
GROUP_FIELDS = tl.constexpr(6)
NUMBER, K, BASE, ROOM, FIRST_TILE, TILES = (tl.constexpr(i) for i in range(6))


class Tables(NamedTuple):
    """Two tables on the device, and their sizes."""

    tiles: Tensor
    groups: Tensor
    choosing_tiles: int
    other_tiles: int
    choosing: int
    room: int  # for candidates of all groups
    slots: int  # pieces of work, at most
    warps: int
    rows: int  # of a tile


@kept(512)
def tables(groups: Groups, itemsize: int, device: torch.device) -> Tables:
    if groups.numel >= MOST:
        raise RecipeError(f"{groups.numel} elements are too many for one selection: {MOST - 1}")
    warps, rows = _tiling(groups, itemsize)
    own: list[list[Array]] = [[] for _ in groups.counts]
    others = [_tile_rows((0, 0, g), rows, gives=0) for g, n in enumerate(groups.sizes) if not n]
    for run, out, after in _placed(groups, rows):
        group = run[2]
        part = _tile_rows(run, rows, out, after, groups.counts[group])
        if groups.chooses(group):
            own[group].append(part)
        else:
            part[:, OUT.value] += part[:, LOW.value] - run[0]
            others.append(part)
    lying = dict.fromkeys(group for _, _, group in groups.runs)
    choosing = [group for group in lying if groups.chooses(group)]
    room = rooms([(groups.sizes[g], groups.counts[g]) for g in choosing])
    counts = [sum(map(len, own[group])) for group in choosing]
    described = np.array(
        [choosing, [groups.counts[g] for g in choosing], _before(room), room, _before(counts),
         counts], np.int64,
    ).T  # fmt: skip
    for owner, group in enumerate(choosing):
        for part in own[group]:
            part[:, OWNER.value] = owner
    tiles = [part for group in choosing for part in own[group]]
    return Tables(
        _on(device, np.concatenate([np.empty((0, TILE_FIELDS.value), np.int64), *tiles, *others])),
        _on(device, described),
        sum(counts), sum(map(len, others)), len(choosing), sum(room),
        sum(max(-(-r // PIECE.value), c) for r, c in zip(room, counts, strict=True)), warps, rows,
    )  # fmt: skip


def _tiling(groups: Groups, itemsize: int) -> tuple[int, int]:
    """Warps and rows of a tile: each thread has 128 bytes in flight, unless most are not there."""
    for warps in (16, 4, 2):
        rows = 128 * warps // itemsize
        length = rows * ROW.value
        if length * sum(-(-(e - s) // length) for s, e, _ in groups.runs) <= WASTE * groups.numel:
            break
    return warps, rows


def _placed(groups: Groups, rows: int) -> Iterator[tuple[tuple[int, int, int], int, int]]:
    """The runs with how many are chosen before them, but for those of the only group that chooses
    where it lies in several; and behind how many tiles of this one they lie, or -1."""
    pieces = [group for _, _, group in groups.runs if groups.chooses(group)]
    scattered = len(set(pieces)) < len(pieces)
    out, tiles = 0, 0
    for run in groups.runs:
        group = run[2]
        yield run, out, tiles if scattered else -1
        if not groups.chooses(group):
            out += run[1] - run[0] if groups.counts[group] else 0
        elif scattered:
            tiles += len(_starts(run, rows))
        else:
            out += groups.counts[group]


def _starts(run: tuple[int, int, int], rows: int) -> Array:
    first = run[0] // ROW.value * ROW.value
    return np.arange(first, max(run[1], first + 1), rows * ROW.value, dtype=np.int64)


def _tile_rows(
    run: tuple[int, int, int], rows: int, out: int = 0, after: int = -1, gives: int = 0
) -> Array:
    """A run's part of the table."""
    start, end, group = run
    starts = _starts(run, rows)
    part = np.zeros((len(starts), TILE_FIELDS.value), np.int64)
    part[:, START.value] = starts
    part[:, LOW.value] = np.maximum(starts, start)
    part[:, HIGH.value] = np.minimum(starts + rows * ROW.value, end)
    part[:, GROUP.value], part[:, OUT.value] = group, out
    part[:, AFTER.value], part[:, GIVES.value] = after, gives
    return part


def _before(numbers: list[int]) -> list[int]:
    sums: list[int] = np.cumsum([0, *numbers])[:-1].tolist()
    return sums


def _on(device: torch.device, table: Array) -> Tensor:
    host = torch.from_numpy(np.ascontiguousarray(table))
    # Through pinned memory, or the host would wait for the device.
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
