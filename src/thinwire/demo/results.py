"""What the rows of training runs come to.

Rows of a training run follow its loss:
`seconds` and `bytes_sent_per_rank` count from the run's start, `loss` is the mean over all ranks.
The last row of a run also has what only its end knows (`held_out_loss`, `accuracy`, `step_seconds`)
and what it was trained with (`learning_rate`, `momentum`, `settings`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from thinwire.results import Row


@dataclass(frozen=True)
class Summary:
    """One finished run. Losses are None where training diverged."""

    recipe: str
    model: str
    loss: float | None
    accuracy: float | None
    bytes_a_step: float
    step_seconds: float

    def times_fewer_bytes(self, dense: "Summary") -> float | None:
        return dense.bytes_a_step / self.bytes_a_step if self.bytes_a_step else None


def summarise(rows: Iterable[Row]) -> dict[str, dict[str, Summary]]:
    """By model and recipe, in the order of the rows."""
    last: dict[tuple[str, str], Row] = {}
    for row in rows:
        last[row["model"], row["recipe"]] = row
    summaries: dict[str, dict[str, Summary]] = {}
    for (model, recipe), row in last.items():
        summaries.setdefault(model, {})[recipe] = Summary(
            recipe=recipe,
            model=model,
            loss=row.get("held_out_loss", row["loss"]),
            accuracy=row.get("accuracy"),
            bytes_a_step=row["bytes_sent_per_rank"] / row["step"],
            step_seconds=row.get("step_seconds", row["seconds"] / row["step"]),
        )
    return summaries
