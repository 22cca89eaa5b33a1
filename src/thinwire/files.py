"""Files that are whole or not there, however a process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Where to write instead: beside the file, whose place it takes in one step.

    Nothing is left of it after an error, nor after Ctrl-C. Processes that write the same file do
    not meet: the last one counts.
    """
    path = Path(path)
    beside = path.with_name(f".{os.getpid()}.{path.name}")  # exporters go by the suffix
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
