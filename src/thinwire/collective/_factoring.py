"""Which tensors of a unit travel as thin factors, and where everything lies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import prod

from thinwire.types import Matrices

Shape = tuple[int, ...]
LEAST_SAVING = 2  # times fewer elements in the factors than in the matrix, as in PyTorch's hook
LEAST_RANK = 16  # of a share: rank 4, an eighth of an embedding of width 32, did not keep the loss


@dataclass(frozen=True, slots=True)
class Group:
    """Matrices of one shape that one product takes: where they lie, and where their factors do."""

    where: Matrices
    left: Matrices
    right: Matrices
    tensors: tuple[int, ...]  # which of the unit's they are


@dataclass(frozen=True, slots=True)
class Factoring:
    """All left factors lie in one row and all right ones in another, those of one length together.

    A factor is kept as its transpose: a row for each of its `rank` columns.

    `stretches` are the elements that travel as they are, by where they begin and end.
    """

    groups: tuple[Group, ...]  # as their right factors lie
    left_runs: tuple[Matrices, ...]
    right_runs: tuple[Matrices, ...]
    stretches: tuple[tuple[int, int], ...]

    @property
    def left_size(self) -> int:
        """Elements of all left factors."""
        return sum(run.count * run.every for run in self.left_runs)

    @property
    def right_size(self) -> int:
        """Elements of all right factors."""
        return sum(run.count * run.every for run in self.right_runs)

    @property
    def whole_size(self) -> int:
        """Elements that travel as they are."""
        return sum(end - begin for begin, end in self.stretches)


def is_thin(shape: Shape, rank: int) -> bool:
    """Whether a tensor is a matrix, its first dimension by all others, with factors that save."""
    if len(shape) < 2:
        return False
    rows, columns = shape[0], prod(shape[1:])
    return LEAST_SAVING * rank * (rows + columns) < rows * columns


def width_of(shapes: Sequence[Shape]) -> int:
    """The smaller side of matrices: that which the middle one of all their elements has."""
    sides = Counter[int]()
    for shape in shapes:
        if len(shape) > 1:
            sides[min(shape[0], prod(shape[1:]))] += prod(shape)
    so_far, half = 0, sides.total() / 2
    for side in sorted(sides):
        so_far += sides[side]
        if so_far >= half:
            return side
    return 0


@lru_cache(maxsize=1024)
def factoring(shapes: tuple[Shape, ...], rank: float) -> Factoring:
    """How tensors of these shapes, which lie one after the other, travel at this rank.

    A rank below 1 is a share of their width, and at least `LEAST_RANK`.
    """
    rank = int(rank) if rank >= 1 else max(LEAST_RANK, round(rank * width_of(shapes)))
    starts = [sum(map(prod, shapes[:place])) for place in range(len(shapes))]
    places: dict[tuple[int, int], list[int]] = {}  # which tensors are matrices of a shape
    stretches: list[tuple[int, int]] = []
    for tensor, (shape, start) in enumerate(zip(shapes, starts, strict=True)):
        if is_thin(shape, rank):
            places.setdefault((shape[0], prod(shape[1:])), []).append(tensor)
        elif stretches and stretches[-1][1] == start:
            stretches[-1] = (stretches[-1][0], start + prod(shape))
        elif prod(shape):
            stretches.append((start, start + prod(shape)))
    found = [
        (_matrices(rows, columns, [starts[tensor] for tensor in tensors]), tuple(tensors))
        for (rows, columns), same in places.items()
        for tensors in _equally_far(same, starts)
    ]
    left = _in_a_row([(where.count, where.rows) for where, _ in found], rank)
    right = _in_a_row([(where.count, where.columns) for where, _ in found], rank)
    groups = [
        Group(where, left_at, right_at, tensors)
        for (where, tensors), left_at, right_at in zip(found, left, right, strict=True)
    ]
    groups.sort(key=lambda group: group.right.start)
    return Factoring(tuple(groups), _runs(left), _runs(right), tuple(stretches))


def _equally_far(tensors: Sequence[int], starts: Sequence[int]) -> list[list[int]]:
    """Cut ascending tensors where the distance to the next changes.

    What lies equally far apart, as the layers of a model do, is multiplied at once and where it is.
    """
    runs: list[list[int]] = []
    for tensor in tensors:
        run = runs[-1] if runs else []
        far = starts[tensor] - starts[run[-1]] if run else 0
        if run and (len(run) == 1 or far == starts[run[1]] - starts[run[0]]):
            run.append(tensor)
        else:
            runs.append([tensor])
    return runs


def _matrices(rows: int, columns: int, starts: Sequence[int]) -> Matrices:
    every = starts[1] - starts[0] if len(starts) > 1 else rows * columns
    return Matrices(len(starts), rows, columns, starts[0], every)


def _in_a_row(factors: Sequence[tuple[int, int]], rank: int) -> list[Matrices]:
    """Where factors lie, given how many of which length: the shortest first."""
    placed: dict[int, Matrices] = {}
    start = 0
    for place in sorted(range(len(factors)), key=lambda place: factors[place][1]):
        count, length = factors[place]
        placed[place] = Matrices(count, rank, length, start, rank * length)
        start += count * rank * length
    return [placed[place] for place in range(len(factors))]


def _runs(factors: Sequence[Matrices]) -> tuple[Matrices, ...]:
    """Neighbours of one length together."""
    in_order = sorted(factors, key=lambda factor: factor.start)
    runs = [list(run) for _, run in groupby(in_order, key=lambda factor: factor.columns)]
    return tuple(replace(run[0], count=sum(factor.count for factor in run)) for run in runs)
