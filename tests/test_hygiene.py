"""The pre-commit hook for text files sees each fault."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "hygiene.py"


def run(*paths: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("a \nb\n", "trailing blanks"),
        ("a\r\n", "carriage returns"),
        ("<" * 7 + " ours\n", "conflict markers"),
        ("a", "no newline at the end"),
        ("a\n\n", "blank lines at the end"),
        ("a\n" * 2**20, "more than a megabyte"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, content: str, fault: str) -> None:
    file = tmp_path / "file.txt"
    file.write_text(content, newline="")
    done = run(file)
    assert done.returncode == 1 and f"{file}: {fault}" in done.stdout.splitlines()


def test_a_clean_and_an_empty_file_pass(tmp_path: Path) -> None:
    (tmp_path / "clean.txt").write_text("a\n\nb\n")
    (tmp_path / "empty.txt").write_text("")
    done = run(tmp_path / "clean.txt", tmp_path / "empty.txt")
    assert (done.returncode, done.stdout) == (0, "")
