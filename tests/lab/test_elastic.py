"""torchrun's elastic restart: a node is killed, and the others go on with all that waited.

On cards, and in namespaces: `gpu/test_elastic.py`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.elastic import EXAMPLE, follow, kill

NODES = 3


@pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
def test_a_smaller_group_goes_on_with_all_that_waited(tmp_path: Path) -> None:
    errors, ended = tmp_path / "errors", [""]
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

    def until_the_end(lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith("ended"):
                ended[:] = line.split()
                return
            yield line

    try:
        story = follow(until_the_end(nodes.stdout), NODES, lambda: kill(agents[1]))
    finally:
        for agent in agents:
            kill(agent)
        nodes.wait(60)
    assert ended == ["ended", "0", str(-signal.SIGKILL), "0"], errors.read_text()
    assert {ranks for ranks, _ in story.loaded} == {NODES - 1}
    assert max(lacks for _, lacks in story.loaded) < 1e-4  # residuals are added up
    assert story.saved[100][0] == NODES - 1
