"""Result files, and what their rows come to.

A file is `{"schema": 1, "machine": {...}, "rows": [...]}`. Rows of a training run follow its loss:
`seconds` and `bytes_sent_per_rank` count from the run's start, `loss` is the mean over all ranks.
The last row of a run also has what only its end knows (`held_out_loss`, `accuracy`, `step_seconds`)
and what it was trained with (`learning_rate`, `momentum`, `settings`).
"""

import json
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import thinwire

Row = dict[str, Any]
SCHEMA = 1


def machine() -> dict[str, object]:
    """What a reader needs to judge the timings by."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "thinwire": thinwire.__version__,
    }


class ResultFile:
    """Rows on disk, whole after every `add`: whoever reads sees valid JSON, however a run ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.machine = machine()
        self.rows: list[Row] = []
        self.add([])

    def add(self, rows: Iterable[Row]) -> None:
        self.rows += map(_plain, rows)
        content = {"schema": SCHEMA, "machine": self.machine, "rows": self.rows}
        write_whole(self.path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write beside the file, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _plain(row: Row) -> Row:
    """JSON has no NaN: a diverged loss is null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


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
