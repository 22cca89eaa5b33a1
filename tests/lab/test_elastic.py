"""torchrun's elastic restart: a node is killed, and the others go on with all that waited."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic.py"
LINE = re.compile(r"(\d) ranks (saved|loaded) step (\d+), waiting (\S+)")
NODES = 3


def kill(agent: int) -> None:
    """A whole node: the agent, then its workers, which have sessions of their own."""
    with suppress(OSError):  # it has ended
        children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
        for pid in (agent, *map(int, children)):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
def test_a_smaller_group_goes_on_with_all_that_waited(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        nodes = subprocess.Popen(
            [sys.executable, "-m", "support.elastic_nodes", EXAMPLE, tmp_path.name, str(NODES)],
            env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert nodes.stdout is not None
    agents = [int(pid) for pid in nodes.stdout.readline().split()]
    saved: dict[str, float] = {}
    loaded: list[tuple[str, float]] = []  # by how many ranks, and what it lacks
    killed, line = False, ""
    try:
        for line in nodes.stdout:
            if line.startswith("ended"):
                break
            if not (found := LINE.search(line)):
                continue
            ranks, what, step, waits = found.groups()
            if what == "loaded":
                loaded.append((ranks, abs(float(waits) - saved[step])))
                continue
            saved[step] = float(waits)
            if int(ranks) == NODES and not killed:
                kill(agents[1])
                killed = True
    finally:
        for agent in agents:
            kill(agent)
        nodes.wait(60)
    assert line.split() == ["ended", "0", str(-signal.SIGKILL), "0"], errors.read_text()
    assert {ranks for ranks, _ in loaded} == {str(NODES - 1)}
    assert max(lacks for _, lacks in loaded) < 1e-4  # residuals are added up
    assert "100" in saved
