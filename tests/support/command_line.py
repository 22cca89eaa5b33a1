"""Commands, called as a user calls them: in this process, or in one of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from thinwire.cli.app import app


def call(*arguments: str) -> str:
    """What the command prints; its error is raised."""
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None:
        raise done.exception
    assert "\x1b" not in done.output
    return done.output


def call_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a process of its own."""
    command = [sys.executable, "-m", "thinwire.cli.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def rows(path: str) -> list[dict[str, Any]]:
    """Of a result file."""
    content = json.loads(Path(path).read_text())
    assert content["schema"] == 1
    return content["rows"]
