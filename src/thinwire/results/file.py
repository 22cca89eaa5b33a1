"""Result files: `{"schema": 1, "machine": {...}, "rows": [...]}`, readable at any moment."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thinwire.machine import describe_machine

Row = dict[str, Any]


class ResultFile:
    """Rows on disk, whole after every `add`: whoever reads sees valid JSON, however a run ends.

    Without a path the rows are only kept.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.machine = describe_machine()
        self.rows: list[Row] = []
        self.add([])

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, and put the whole file in its place in one step."""
        self.rows += [_plain(row) for row in rows]
        if self.path is not None:
            content = {"schema": 1, "machine": self.machine, "rows": self.rows}
            write_whole(self.path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write beside the file, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8")
    try:
        beside.replace(path)
    except OSError:
        beside.unlink()
        raise


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: a diverged loss is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
