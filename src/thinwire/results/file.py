"""Result files, which can be read at any moment.

`{"schema": 1, "machine": {...}, "commit": ..., "command": ..., "rows": [...]}`
"""

import errno
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from thinwire.files import from_json, whole
from thinwire.machine import describe_machine
from thinwire.results.origin import command, commit

SCHEMA = 1
Row = dict[str, Any]
_NUMBERS = re.compile(r"\[\n[^\[\]{}\"]*\]")  # a list of them


class ResultFile:
    """Rows on disk, whole after every `add`: whoever reads sees valid JSON, however a run ends.

    Without a path the rows are only kept. The machine is this one if it is not given. A run that
    goes on where another ended begins with the other's `rows`.
    """

    def __init__(
        self,
        path: Path | None,
        machine: Mapping[str, object] | None = None,
        rows: Iterable[Row] = (),
    ) -> None:
        self.path = path
        self.machine = dict(machine or describe_machine())
        self._origin = {"commit": commit(), "command": command(sys.argv)}
        self.rows: list[Row] = []
        self.add(rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, and put the whole file in its place in one step."""
        self.rows += [_plain(row) for row in rows]
        if self.path is not None:
            head = {"schema": SCHEMA, "machine": self.machine, **self._origin}
            write_whole(self.path, _text(head | {"rows": self.rows}))


def replace_rows(path: Path, rows: Iterable[Row]) -> None:
    """Other rows in a file; where and by which command they were measured stays as it is."""
    content = from_json(path.read_text(encoding="utf-8"))
    write_whole(path, _text(content | {"rows": [_plain(row) for row in rows]}))


def write_whole(path: Path, text: str) -> None:
    """Write beside the file, then put it in its place in one step."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _text(content: dict[str, Any]) -> str:
    return _NUMBERS.sub(_on_one_line, json.dumps(content, indent=1, allow_nan=False)) + "\n"


def _on_one_line(numbers: re.Match[str]) -> str:
    return " ".join(numbers[0].split()).replace("[ ", "[").replace(" ]", "]")


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: a diverged loss is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
