"""Result files: readable at any moment, and they say which code and which command made them.

Covers results/origin.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from thinwire.results import origin
from thinwire.results.file import ResultFile
from thinwire.results.origin import command, commit


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """With a committed package and a file of results."""
    folder = tmp_path / "checkout"
    (folder / "src" / "thinwire").mkdir(parents=True)
    (folder / "src" / "thinwire" / "code.py").touch()
    (folder / "results.json").touch()
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def test_a_result_file_is_whole_from_the_start_and_after_every_row(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    results = ResultFile(path)
    assert json.loads(path.read_text())["rows"] == []
    results.add([{"seconds": float("nan"), "seconds_by_phase": {"select": float("inf")}}])
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    assert {"cpu", "cores", "memory_gib", "kernel", "python", "torch"} <= set(content["machine"])
    assert content["rows"] == [{"seconds": None, "seconds_by_phase": {"select": None}}]
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_numbers_of_a_list_stand_on_one_line_and_a_run_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    points = {"loss": [1.5, float("nan"), 2], "names": ["a", "b"]}
    row = {"recipe": "topk [\n 1 ]", "points": points}
    ResultFile(path).add([row])
    assert '"loss": [1.5, null, 2]' in path.read_text()
    known = json.loads(path.read_text())["rows"]
    assert known == [row | {"points": {"loss": [1.5, None, 2], "names": ["a", "b"]}}]
    more = ResultFile(path, rows=known)
    assert json.loads(path.read_text())["rows"] == known == more.rows


def test_a_file_names_the_commit_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/thinwire", "recipes", "--json", "out.json"])
    ResultFile(tmp_path / "out.json").add([{"recipe": "dense"}])
    content = json.loads((tmp_path / "out.json").read_text())
    assert list(content) == ["schema", "machine", "commit", "command", "rows"]
    assert content["commit"] == commit()
    assert content["command"] == "thinwire recipes --json out.json"


def test_the_commit_is_that_of_the_code(checkout: Path) -> None:
    short = git(checkout, "rev-parse", "--short", "HEAD")
    assert commit(checkout) == short
    (checkout / "results.json").write_text("{}")  # what a run writes is no change of the code
    assert commit(checkout) == short
    (checkout / "src" / "thinwire" / "code.py").write_text("new = True\n")
    assert commit(checkout) == f"{short}+changes"


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path, checkout: Path) -> None:
    assert commit(tmp_path) is None
    assert commit(checkout / "src") is None  # installed somewhere below another project


@pytest.mark.parametrize("packed", [False, True])
def test_without_git_the_commit_is_still_read(
    checkout: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = git(checkout, "rev-parse", "HEAD")
    if packed:
        git(checkout, "pack-refs", "--all")
    monkeypatch.setattr(origin, "_git", lambda *_: None)
    assert commit(checkout) == full[:7]
    (checkout / ".git" / "HEAD").write_text(full)  # detached
    assert commit(checkout) == full[:7]
    (checkout / ".git" / "HEAD").unlink()
    assert commit(checkout) is None


def test_a_missing_git_is_no_error(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit(checkout) is not None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["/opt/bin/thinwire", "report", "a b.json"], "thinwire report 'a b.json'"),
        (["/opt/x/thinwire/cli/app.py", "recipes"], "thinwire recipes"),
        (
            ["thinwire", "recipes", "--json", "/home/me/out.json"],
            "thinwire recipes --json out.json",
        ),
        (["thinwire", "recipes", "--json=/home/me/out.json"], "thinwire recipes --json=out.json"),
        (["thinwire", "report", "docs/results"], "thinwire report docs/results"),
        (["thinwire", "bench", "sync", "--n", "1m,4m"], "thinwire bench sync --n 1m,4m"),
    ],
)
def test_the_command_has_no_path_of_this_machine(arguments: list[str], line: str) -> None:
    assert command(arguments) == line
