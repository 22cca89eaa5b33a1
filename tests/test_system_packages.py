"""The script that installs what tests need: only where it may, and it never fails."""

import subprocess
from pathlib import Path
from shutil import which

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "system-packages"


def run(folder: Path, **commands: str) -> str:
    """The script's words, on a system that has these commands and no others."""
    for name, body in commands.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!{which('sh')}\n{body}\n")
        path.chmod(0o755)
    done = subprocess.run(
        [which("bash") or "bash", SCRIPT],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout


ROOT, USER = "echo 0", "echo 1000"
TIMEOUT = 'shift; exec "$@"'


def test_nothing_is_done_where_all_is_there(tmp_path: Path) -> None:
    assert run(tmp_path, chromium="") == "system packages: all there\n"


@pytest.mark.parametrize("commands", [{"id": USER, "apt_get": "exit 9"}, {"id": ROOT}])
def test_it_says_what_it_may_not_install(tmp_path: Path, commands: dict[str, str]) -> None:
    assert "chromium missing; not installed" in run(tmp_path, **commands)


def test_it_installs_what_is_missing(tmp_path: Path) -> None:
    record = tmp_path / "calls"
    log = f'echo "$@" >> {record}'
    said = run(tmp_path, id=ROOT, apt_get=log, timeout=TIMEOUT)
    assert said == "system packages: chromium installed\n"
    calls = record.read_text().splitlines()
    assert len(calls) == 2 and calls[0].startswith("update") and calls[1].endswith(" chromium")


def test_a_failed_installation_is_said_and_forgiven(tmp_path: Path) -> None:
    said = run(tmp_path, id=ROOT, apt_get="exit 100", timeout=TIMEOUT)
    assert "chromium missing; apt-get could not install it" in said
