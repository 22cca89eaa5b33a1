"""Result files read back: the rows of several files together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.errors import ThinwireError
from thinwire.files import from_json
from thinwire.results.file import SCHEMA, Row

NUMBERS = frozenset(
    ["workers", "rate", "n", "k", "density", "seconds", "floor_seconds", "ratio", "bits_per_item",
     "entropy_bits", "step", "loss", "encode_items_per_s", "decode_items_per_s",
     "bytes_sent_per_rank", "bytes_per_rank", "alpha", "beta"]
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
    if not isinstance(row, dict):
        raise ThinwireError(f"{where} is {row!r}, not an object")
    for field in NUMBERS & row.keys():
        if not isinstance(row[field], int | float | None):
            raise ThinwireError(f"{where}: {field} is {row[field]!r}, not a number")
    if not isinstance(row.get("seconds_by_phase", {}), dict):
        raise ThinwireError(f"{where}: seconds_by_phase is not an object")
