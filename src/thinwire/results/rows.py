"""Result files read back: the rows of several files together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.errors import ThinwireError
from thinwire.files import from_json
from thinwire.results.file import SCHEMA, Row

NUMBERS = frozenset(
    ["rate", "k", "density", "seconds", "floor_seconds", "ratio", "bits_per_item", "threads",
     "entropy_bits", "loss", "encode_items_per_s", "decode_items_per_s", "payloads", "steps",
     "bytes_sent_per_rank", "bytes_per_rank", "alpha", "beta"]
)  # fmt: skip
COUNTS = frozenset(["workers", "n", "step", "samples_per_step", "start", "end", "relative_error"])
"""Numbers that are there wherever their field is."""
WORDS = frozenset(
    ["recipe", "model", "device", "optimizer", "op", "impl", "what", "stream", "part", "codec",
     "distribution", "paper", "item", "panel", "unit"]
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    """Rows, each with the `file` it is from; and the machine, commit and command of each file.

    Files that were written before there was a commit in them have none here either.
    """

    rows: list[Row]
    origins: dict[str, dict[str, Any]]


def read(paths: Sequence[Path]) -> Results:
    """All rows of the files, and of the files in the folders."""
    results = Results([], {})
    for label, path in _labelled(_files(paths)):
        content = _content(path)
        machine = content["machine"]
        if _is_of_many(machine):
            results.origins.update(machine)
        else:
            run = {field: content[field] for field in ("commit", "command") if content.get(field)}
            results.origins[label] = run | machine
        results.rows.extend({"file": label} | row for row in content["rows"])
    return results


def _is_of_many(machine: dict[str, Any]) -> bool:
    """Whether a report wrote this file, with an entry for each file that it had read."""
    return bool(machine) and all(isinstance(value, dict) for value in machine.values())


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise ThinwireError(f"{path}: no result files (*.json) in this folder")
        files += inside
    return list(dict.fromkeys(files))


def _labelled(files: Sequence[Path]) -> list[tuple[str, Path]]:
    """A file's name, or its whole path where two have the same name."""
    names = [path.name for path in files]
    return [(path.name if names.count(path.name) == 1 else path.as_posix(), path) for path in files]


def _content(path: Path) -> dict[str, Any]:
    try:
        content = from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ThinwireError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ThinwireError(f"{path}: not a result file: {error}") from None
    if not isinstance(content, dict) or "schema" not in content:
        raise ThinwireError(f"{path}: not a result file: it has no schema")
    if content["schema"] != SCHEMA:
        raise ThinwireError(
            f"{path}: schema {content['schema']!r}, but this thinwire reads {SCHEMA}; "
            "use the thinwire that wrote it"
        )
    if not isinstance(content.get("machine"), dict) or not isinstance(content.get("rows"), list):
        raise ThinwireError(f"{path}: not a result file: it needs a machine and a list of rows")
    for position, row in enumerate(content["rows"]):
        _check(row, f"{path}: row {position}")
    return content


def _check(row: Any, where: str) -> None:
    """What others rely on, whoever wrote the file."""
    if not isinstance(row, dict):
        raise ThinwireError(f"{where} is {row!r}, not an object")

    def refuse(field: str, due: str) -> None:
        raise ThinwireError(f"{where}: {field} is {row[field]!r:.80}, not {due}")

    for field in row.keys() & (NUMBERS | COUNTS):
        optional = row[field] is None and field in NUMBERS
        if not (isinstance(row[field], int | float) or optional):
            refuse(field, "a number")
    for field in row.keys() & WORDS:
        if not isinstance(row[field], str):
            refuse(field, "a word")
    if not isinstance(row.get("seconds_by_phase", {}), dict):
        refuse("seconds_by_phase", "an object")
    failed = row.get("points") is None and row.get("error") is not None
    if "points" in row and not failed and not _are_points(row["points"]):
        refuse("points", "lists of numbers, equally long")
    if "curves" in row and not _are_curves(row["curves"]):
        refuse("curves", "a list of series with x and y, equally long")


def _are_points(points: Any) -> bool:
    """Columns of numbers, or of nothing where a loss diverged."""
    if not isinstance(points, dict) or not all(isinstance(at, list) for at in points.values()):
        return False
    numbers = (value for column in points.values() for value in column)
    whole = all(isinstance(value, int | float | None) for value in numbers)
    return "step" in points and whole and len(set(map(len, points.values()))) == 1


def _are_curves(curves: Any) -> bool:
    """Each from somewhere, with an x for each y; what bars stand for has names in place of x."""
    return isinstance(curves, list) and all(
        isinstance(curve, dict)
        and all(isinstance(curve.get(name), str) for name in ("series", "source"))
        and all(isinstance(curve.get(axis), list) for axis in "xy")
        and len(curve["x"]) == len(curve["y"])
        and all(isinstance(x, str | int | float) for x in curve["x"])
        and all(isinstance(y, int | float | None) for y in curve["y"])
        for curve in curves
    )
