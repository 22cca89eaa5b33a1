"""Which elements are chosen from which, and what a choice gives."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from torch import Tensor

from thinwire.errors import RecipeError

Range = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Groups:
    """How a flat tensor is shared out to selections.

    `ranges` are (start, end, group), ascending, without gaps; `counts` says how many each group
    gives. A group that gives all or none of its elements may lie anywhere; of those that choose,
    each lies in one piece, unless there is only one of them.

    What a device needs to know of them is put there once for each: keep them for the next step.
    """

    ranges: tuple[Range, ...]
    counts: tuple[int, ...]
    runs: tuple[Range, ...] = field(init=False, repr=False, compare=False)
    """The ranges, with those made one that follow each other in one group."""
    sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """How many elements each group has."""
    total: int = field(init=False, repr=False, compare=False)
    """How many are chosen in all."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes, end = [0] * len(self.counts), 0
        for start, stop, group in self.ranges:
            if start != end or stop <= start or not 0 <= group < len(sizes):
                raise RecipeError(
                    f"range ({start}, {stop}, {group}) must begin at {end}, end behind it, and be "
                    f"of one of {len(sizes)} groups"
                )
            sizes[group] += stop - start
            end = stop
        runs = tuple(_merged(self.ranges))
        for name, value in (
            ("runs", runs),
            ("sizes", tuple(sizes)),
            ("total", sum(self.counts)),
            ("_hash", hash((self.ranges, self.counts))),  # thousands of numbers, asked every step
        ):
            object.__setattr__(self, name, value)
        self._check()

    def __hash__(self) -> int:
        return self._hash

    @property
    def numel(self) -> int:
        """How many elements the tensor has."""
        return self.ranges[-1][1] if self.ranges else 0

    def chooses(self, group: int) -> bool:
        """Whether it gives some of its elements, but not all."""
        return 0 < self.counts[group] < self.sizes[group]

    def _check(self) -> None:
        for group, (count, size) in enumerate(zip(self.counts, self.sizes, strict=True)):
            if not 0 <= count <= size:
                raise RecipeError(f"k={count} of group {group} must be in [0, {size}], its size")
        choosing = [group for _, _, group in self.runs if self.chooses(group)]
        if len(set(choosing)) > 1 and len(set(choosing)) < len(choosing):
            scattered = next(group for group in choosing if choosing.count(group) > 1)
            raise RecipeError(
                f"group {scattered} lies in several pieces beside other groups that choose: make "
                "each one piece, or choose from one group only"
            )


class Chosen(NamedTuple):
    """The elements chosen of all groups, and what each group's next guess can be made from."""

    indices: Tensor
    """int64, `Groups.total` of them, ascending over the whole flat tensor."""
    values: Tensor
    kth: Tensor
    """For each group its k-th magnitude; infinite where k = 0."""
    passed: Tensor
    """int64: for each group that chooses how many reached the guess; for others their k."""


def _merged(ranges: tuple[Range, ...]) -> Iterator[Range]:
    for group, same in groupby(ranges, key=lambda each: each[2]):
        pieces = list(same)
        yield pieces[0][0], pieces[-1][1], group
