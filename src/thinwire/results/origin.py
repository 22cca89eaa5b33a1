"""What a result comes from: the commit of the code, and the command that was given."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
PACKAGE = "src/thinwire"


def commit(checkout: Path = CHECKOUT) -> str | None:
    """The short hash, with `+changes` if the package has any; None for an installed package.

    Other files of the checkout do not count: result files are among them.
    """
    if not (checkout / PACKAGE).is_dir() or not (checkout / ".git").exists():
        return None
    revision = _git(checkout, "rev-parse", "--short", "HEAD") or _read_head(checkout / ".git")
    changes = _git(checkout, "status", "--porcelain", "--", PACKAGE)
    return f"{revision}+changes" if revision and changes else revision


def command(arguments: Sequence[str]) -> str:
    """The program's name and its arguments; of absolute paths only the last part.

    >>> command(["/usr/bin/thinwire", "recipes", "--json", "/home/me/recipes.json"])
    'thinwire recipes --json recipes.json'
    """
    program, *others = [re.sub(r"(^|[=,:])/(?:[^=,:]*/)?", r"\1", word) for word in arguments]
    program = Path(program).name
    return shlex.join(["thinwire" if program == "app.py" else program, *others])


def _git(checkout: Path, *arguments: str) -> str | None:
    """What git answers; None where there is no git, or it refuses."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", checkout, *arguments],  # it only looks
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def _read_head(folder: Path) -> str | None:
    """Without git: what HEAD points at, by a file of its own or by a line of packed-refs."""
    try:
        head = (folder / "HEAD").read_text().strip().removeprefix("ref: ")
        if not head.startswith("refs/"):
            return head[:7]
        if (folder / head).exists():
            return (folder / head).read_text()[:7]
        lines = (folder / "packed-refs").read_text().splitlines()
    except OSError:
        return None
    return next((line[:7] for line in lines if line.endswith(f" {head}")), None)
