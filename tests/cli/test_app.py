"""The command line: what it prints, how it fails, what it needs."""

import subprocess
import sys
from pathlib import Path

import pytest

import thinwire as tw
from support.extras import CLI, needs

COMMAND = [sys.executable, "-m", "thinwire.cli.app"]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@needs(*CLI)
def test_an_unknown_recipe_is_one_line_that_names_it_and_code_2(tmp_path: Path) -> None:
    done = call("demo", "--recipes", "topk,nosuch", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "'nosuch'" in line and "topk" in line
    assert not (tmp_path / "out").exists()


@needs(*CLI)
def test_it_says_its_version() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout) == (0, f"thinwire {tw.__version__}\n")


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_missing_extra_is_named(package: str) -> None:
    done = python(f"import sys; sys.modules['{package}'] = None; import thinwire.cli.app")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "thinwire: the command line needs two more packages: pip install 'thinwire[cli]'"
    ]


def test_the_library_does_not_need_the_command_line() -> None:
    done = python("import sys, thinwire; print({'typer', 'rich', 'sklearn'} & set(sys.modules))")
    assert done.stdout.strip() == "set()"
