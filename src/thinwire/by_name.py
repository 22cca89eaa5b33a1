"""A recipe that is several: which one a tensor goes by is read off its name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Self

import torch

from thinwire.collective import Dense
from thinwire.errors import RecipeError
from thinwire.feedback import NoFeedback
from thinwire.pipeline import Pipeline
from thinwire.sparsify import Everything

KEY = "by_name"  # of the pairs of pattern and recipe in what `to_dict` writes
MARKS = frozenset("*?[.")  # of a pattern or a parameter's name; no field of a recipe has one


@dataclass(frozen=True, slots=True)
class ByName(Pipeline):
    """`rules` are patterns as of `fnmatch` and their recipes; the first that matches counts.

    Tensors of different recipes never share a unit, and each keeps the state of its own. The
    pieces of this pipeline itself are of no use: ask for those of a tensor (`of_tensor`).
    """

    sparsifier: Everything = field(default_factory=Everything)
    codec: None = None
    collective: Dense = field(default_factory=Dense)
    feedback: NoFeedback = field(default_factory=NoFeedback)
    rules: tuple[tuple[str, Pipeline], ...] = ()
    patterns: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        Pipeline.__post_init__(self)
        object.__setattr__(self, "patterns", tuple(pattern for pattern, _ in self.rules))
        if not self.rules:
            raise RecipeError("a recipe by names has no patterns: give at least one, as '*'")
        for pattern, recipe in self.rules:
            if type(recipe) is not Pipeline:
                raise RecipeError(
                    f"the recipe for {pattern!r} chooses by itself, between tensors or whole "
                    "steps: name one that does not"
                )

    @classmethod
    def of(cls, rules: Mapping[str, Pipeline] | Sequence[tuple[str, Pipeline]]) -> Self:
        """By these rules, in their order. Equal recipes are one: their tensors go together."""
        pairs = rules.items() if isinstance(rules, Mapping) else rules
        known: list[Pipeline] = []
        shared: list[tuple[str, Pipeline]] = []
        for pattern, recipe in pairs:
            same = next((one for one in known if one == recipe), recipe)
            known.append(same)
            shared.append((pattern, same))
        return cls(rules=tuple(shared))

    def of_tensor(self, name: str) -> Pipeline:
        """The recipe of the first pattern that matches."""
        found = _first_match(self.patterns, name)
        if found is None:
            raise RecipeError(
                f"the recipe has no pattern for the parameter {name!r}; it has "
                f"{', '.join(map(repr, self.patterns))}: add one, or '*' for all others"
            )
        return self.rules[found][1]

    def split(self, names: Iterable[str]) -> list[tuple[Pipeline, list[str]]]:
        """These tensors by their recipes, each in order."""
        groups: dict[int, tuple[Pipeline, list[str]]] = {}
        for name in names:
            recipe = self.of_tensor(name)
            groups.setdefault(id(recipe), (recipe, []))[1].append(name)
        return list(groups.values())

    def names_by_pattern(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Which of these tensors each pattern gets: none, where those before it match them all."""
        gets: dict[str, list[str]] = {pattern: [] for pattern in self.patterns}
        for name in names:
            found = _first_match(self.patterns, name)
            if found is not None:
                gets[self.patterns[found]].append(name)
        return gets

    @property
    def conserves(self) -> bool:
        """As of a pipeline, whichever tensor it is."""
        return all(recipe.conserves for _, recipe in self.rules)

    @property
    def alternatives(self) -> tuple[Pipeline, ...]:
        """The recipes of all patterns."""
        return tuple(recipe for _, recipe in self.rules)

    def is_steady(self, device: torch.device) -> bool:
        """Whether a step asks the host nothing for any of the tensors."""
        return all(recipe.is_steady(device) for _, recipe in self.rules)

    def to_dict(self) -> dict[str, Any]:
        """Pairs of pattern and recipe: their order counts, and a mapping's may get lost."""
        return {KEY: [[pattern, recipe.to_dict()] for pattern, recipe in self.rules]}


@lru_cache(maxsize=1 << 14)
def _first_match(patterns: tuple[str, ...], name: str) -> int | None:
    return next((i for i, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), None)
