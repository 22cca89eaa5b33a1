"""A recipe that is one of several: dense, or another where that is faster.

Which one is decided in `trials`, for the whole model, or in `selective`, unit by unit; here is
between what, and why no choice loses anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from thinwire.auto.rules import DENSE
from thinwire.collective import Dense
from thinwire.cost.patterns import check_modelled
from thinwire.errors import RecipeError
from thinwire.feedback import Momentum, NoFeedback, Residual
from thinwire.pipeline import Pipeline
from thinwire.settings import check_integer
from thinwire.sparsify import Everything
from thinwire.types import Feedback

FLUSH = Pipeline(Everything(), None, Dense(), Residual(), unit="bucket", bypass=0)
"""Sends the gradient with all that waits: the step between a sparse choice and dense."""


def dense_pipeline(feedback: Feedback) -> Pipeline:
    """How a tensor travels that a recipe with this feedback does not compress.

    Momentum that the recipe takes over from the optimiser goes on without masking: since all of it
    is delivered, that is momentum SGD. Adam's steps are made before the exchange as of all other
    tensors. Nothing else waits, and so there is nothing to keep.
    """
    if isinstance(feedback, Momentum):
        feedback = replace(feedback, masking=False)
    kept = feedback if feedback.is_step or isinstance(feedback, Momentum) else NoFeedback()
    return Pipeline(Everything(), None, Dense(), kept, unit="bucket", bypass=0)


@dataclass(frozen=True, slots=True)
class Auto(Pipeline):
    """Its own four pieces are the choice "dense"; `choices`, by label, are the others.

    All choices keep what was not sent in the same residual, so that a tensor may go from one to
    another at any step and law 1 still holds; dense without feedback is reached by one step of
    `FLUSH`.

    Dense and what is chosen are measured for `trial` steps; 0 lets calibrated costs decide alone,
    for each unit (DRAGONN, section 4.2).
    """

    choices: tuple[tuple[str, Pipeline], ...] = ()
    trial: int = 3

    def __post_init__(self) -> None:
        Pipeline.__post_init__(self)
        check_integer("trial", self.trial, 0)
        for _, choice in self.choices:
            check_modelled(choice.collective)
        labels = [label for label, _ in self.choices]
        if len({DENSE, *labels}) != 1 + len(labels):
            raise RecipeError(f"choices {labels} must have different labels, none of them {DENSE}")
        kinds = {type(choice.feedback) for _, choice in self.choices}
        kinds |= set() if isinstance(self.feedback, NoFeedback) else {type(self.feedback)}
        if len(kinds) > 1 or NoFeedback in kinds:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise RecipeError(
                f"choices must share one feedback, or what waits is lost on the way from one to "
                f"another; these have {names}"
            )

    @classmethod
    def between(cls, dense: Pipeline, choices: Mapping[str, Pipeline], trial: int = 3) -> Self:
        """One that chooses between these."""
        own = {f.name: getattr(dense, f.name) for f in fields(dense)}
        return cls(**own, choices=tuple(choices.items()), trial=trial)

    @property
    def conserves(self) -> bool:
        """As of a pipeline, whichever is chosen."""
        return all(choice.conserves for _, choice in self.choices)

    def to_dict(self) -> dict[str, Any]:
        """As of a pipeline, with all choices."""
        choices = {label: choice.to_dict() for label, choice in self.choices}
        return Pipeline.to_dict(self) | {"choices": choices, "trial": self.trial}

    @property
    def labels(self) -> tuple[str, ...]:
        """Of all choices, dense first."""
        return (DENSE, *(label for label, _ in self.choices))

    @property
    def alternatives(self) -> tuple[Pipeline, ...]:
        """The pipelines of all labels."""
        return tuple(map(self.pipeline_for, self.labels))

    def pipeline_for(self, label: str) -> Pipeline:
        """The pipeline of a choice; the dense one for any other label."""
        for known, choice in self.choices:
            if known == label:
                return replace(choice, warm_up=self.warm_up)
        return Pipeline(**{f.name: getattr(self, f.name) for f in fields(Pipeline)})
