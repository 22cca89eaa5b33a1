"""Files that are whole or not there, however a process ends; JSON that may be damaged."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Where to write instead: beside the file, whose place it takes in one step.

    Nothing is left of it after an error, nor after Ctrl-C. Processes that write the same file do
    not meet: the last one counts. An error of the system names the file, as on a full disk.
    """
    path = Path(path)
    beside = path.with_name(f".{os.getpid()}.{path.name}")  # exporters go by the suffix
    try:
        yield beside
        beside.replace(path)
    except OSError as error:
        if error.filename is None:  # what writes to an open file does not know its name
            error.filename = str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)


def from_json(text: str | bytes) -> Any:
    """What JSON says; a ValueError where it is none, or nested more deeply than can be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
