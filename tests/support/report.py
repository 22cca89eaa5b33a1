"""One report, made by the command itself, for the tests of the command and of the page."""

import subprocess
import sys
from pathlib import Path

import pytest

from support import samples


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page; its figures as PNG and its rows as JSON lie beside it."""
    folder = tmp_path_factory.mktemp("report")
    paths = samples.write(folder / "results")
    out = folder / "report.html"
    options = ["--out", out, "--png", folder / "png", "--json", folder / "all.json"]
    done = subprocess.run(
        [sys.executable, "-m", "thinwire.cli.app", "report", *map(str, paths), *map(str, options)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert str(out) in done.stdout and "\x1b" not in done.stdout
    return out
