"""What the rows of training runs come to.

Rows of a training run follow its loss:
`seconds` and `bytes_sent_per_rank` count from the run's start, `loss` is the mean over all ranks.
The last row of a run also has what only its end knows (`held_out_loss`, `accuracy`, `step_seconds`)
and what it was trained with (`learning_rate`, `momentum`, `settings`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from thinwire.results.file import Row

BySeed = dict[int | None, float | None]
"""What each seed's run reached; None where it diverged, or where it was not measured."""


@dataclass(frozen=True)
class Summary:
    """One recipe's finished runs."""

    recipe: str
    model: str
    losses: BySeed
    accuracies: BySeed
    bytes_a_step: float
    step_seconds: float

    def times_fewer_bytes(self, dense: "Summary") -> float | None:
        return dense.bytes_a_step / self.bytes_a_step if self.bytes_a_step else None


def summarise(rows: Iterable[Row]) -> dict[str, dict[str, Summary]]:
    """By model and recipe, in the order of the rows."""
    last: dict[tuple[str, str], dict[int | None, Row]] = {}
    for row in rows:
        last.setdefault((row["model"], row["recipe"]), {})[row.get("seed")] = row
    summaries: dict[str, dict[str, Summary]] = {}
    for (model, recipe), runs in last.items():
        ends = runs.values()
        summaries.setdefault(model, {})[recipe] = Summary(
            recipe=recipe,
            model=model,
            losses={seed: row.get("held_out_loss", row["loss"]) for seed, row in runs.items()},
            accuracies={seed: row.get("accuracy") for seed, row in runs.items()},
            bytes_a_step=fmean(row["bytes_sent_per_rank"] / row["step"] for row in ends),
            step_seconds=fmean(
                row.get("step_seconds", row["seconds"] / row["step"]) for row in ends
            ),
        )
    return summaries
