"""The command line: what it prints, how it fails, what it needs."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import thinwire as tw
from support.extras import CLI, needs
from support.signals import hear_signals

COMMAND = [sys.executable, "-m", "thinwire.cli.app"]
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


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
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_to_a_full_disk_is_one_line() -> None:
    simulate = [*COMMAND, "simulate", "--recipes", "topk", "--workers", "2"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(simulate, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "thinwire: output: No space left on device\n"


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


def as_installed(before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script that `pip install` writes, with something done before."""
    module, main = PROJECT["scripts"]["thinwire"].split(":")
    code = f"{before}\nfrom {module} import {main} as main; main()"
    words = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, preexec_fn=hear_signals
    )


WHILE_IMPORTING = """
import os, signal, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""


@needs(*CLI)
@pytest.mark.parametrize("module", ["torch", "numba", "thinwire.cli.simulate"])
def test_ctrl_c_during_the_imports_is_130_and_not_a_word(module: str) -> None:
    done = as_installed(WHILE_IMPORTING.format(module=module), "recipes")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@needs(*CLI)
def test_where_ctrl_c_is_ignored_it_is_so_during_the_imports_too() -> None:
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    done = as_installed(ignored + WHILE_IMPORTING.format(module="torch"), "recipes")
    assert done.returncode == 0 and "topk" in done.stdout


WHILE_FORKING = """
import os, signal
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.{name}))
"""


@needs(*CLI)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_the_middle_of_a_fork_is_heard_after_it(name: str) -> None:
    """It is heard in the hooks of the fork, and Python drops what is raised there."""
    sleeping = ["lab", "--loopback", "--workers", "1", "--", "sleep", "100"]
    done = as_installed(WHILE_FORKING.format(name=name), *sleeping)
    assert done.returncode == 128 + getattr(signal, name)
    assert "Traceback" not in done.stderr


@needs(*CLI)
@pytest.mark.parametrize("dashes", [(), ("--",)])
def test_what_follows_the_labs_command_is_the_commands(dashes: tuple[str, ...]) -> None:
    done = call("lab", "--loopback", "--workers", "1", *dashes, "sh", "-c", "exit 5", "--rate")
    assert done.returncode == 5, done.stderr
