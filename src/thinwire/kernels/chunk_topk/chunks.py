"""Where chunks lie, and how many elements each of them gives."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels.kept import kept
from thinwire.settings import target_count

MOST_CHUNK = 1 << 14  # elements: one program of a GPU holds a chunk in its registers
Range = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class Chunks:
    """A flat tensor cut into chunks of `length` elements, which choose `density` of theirs.

    `ranges` are (start, end, whole), ascending, without gaps. Chunks begin anew in each of them,
    and the last one of each may be short; a range that is `whole` gives all of its elements.
    """

    ranges: tuple[Range, ...]
    length: int
    density: float

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MOST_CHUNK:
            raise RecipeError(f"chunks of {self.length} elements must have 1 to {MOST_CHUNK}")
        end = 0
        for start, stop, _ in self.ranges:
            if start != end or stop <= start:
                raise RecipeError(f"range ({start}, {stop}) must begin at {end} and end behind it")
            end = stop

    @property
    def numel(self) -> int:
        """How many elements the tensor has."""
        return self.ranges[-1][1] if self.ranges else 0

    def count(self, size: int, whole: bool) -> int:
        """How many a chunk of this size gives: one at least."""
        return size if whole else target_count(size, self.density, None)


@lru_cache(maxsize=64)
def table_of(chunks: Chunks) -> NDArray[np.int64]:
    """Of each chunk where it begins, where it ends, and how many the chunks before it give.

    A last row says how many all of them give.
    """
    parts = [np.zeros((0, 3), np.int64)]
    for start, end, whole in chunks.ranges:
        begins = np.arange(start, end, chunks.length, dtype=np.int64)
        ends = np.minimum(begins + chunks.length, end)
        counts = np.full(begins.size, chunks.count(chunks.length, whole), np.int64)
        counts[-1] = chunks.count(int(ends[-1] - begins[-1]), whole)
        parts.append(np.stack((begins, ends, counts), axis=1))
    table = np.concatenate([*parts, np.zeros((1, 3), np.int64)])
    table[:, 2] = np.cumsum(table[:, 2]) - table[:, 2]
    return table


@kept(64)
def table_on(chunks: Chunks, device: torch.device) -> Tensor:
    """Kept there: bringing it to a device makes the host wait."""
    return torch.from_numpy(table_of(chunks)).to(device)


def total_of(chunks: Chunks) -> int:
    """How many all chunks give."""
    return int(table_of(chunks)[-1, 2])
