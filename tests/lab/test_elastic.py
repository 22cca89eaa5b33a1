"""torchrun's elastic restart: a node is killed, and the others go on with all that waited."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic.py"
LINE = re.compile(r"(\d) ranks (saved|loaded) step (\d+), waiting (\S+)")
CONF = "join_timeout=100,last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3"


def agents(folder, write_end):
    """Three of torchrun's, each with one worker; the first keeps the rendezvous."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    return [
        subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3",
                "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d",
                f"--rdzv-id={folder.name}", f"--rdzv-endpoint={endpoint}",
                "--local-addr=127.0.0.1", f"--rdzv-conf={CONF},is_host={int(number == 0)}",
                str(EXAMPLE),
            ],
            env=os.environ | environment,
            stdout=write_end,
            stderr=subprocess.DEVNULL,
        )
        for number in range(3)
    ]  # fmt: skip


def kill(agent):
    """A whole node: the agent, then its workers, which have sessions of their own."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    for pid in (agent.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
@pytest.mark.skipif(
    "THINWIRE_SLOW" not in os.environ,
    reason="torchrun's rendezvous takes minutes at times; THINWIRE_SLOW=1 runs it",
)
def test_a_smaller_group_goes_on_with_all_that_waited(tmp_path):
    read_end, write_end = os.pipe()
    running = agents(tmp_path, write_end)
    os.close(write_end)
    saved, loaded = {}, []
    try:
        with os.fdopen(read_end) as lines:
            for found in filter(None, map(LINE.search, lines)):  # until all have ended
                ranks, what, step, waits = found.groups()
                if what == "loaded":
                    near = abs(float(waits) - float(saved[step])) < 1e-4  # residuals are added up
                    loaded.append((ranks, near))
                    continue
                saved[step] = waits
                if ranks == "3" and running[1].poll() is None:
                    kill(running[1])
        codes = [agent.wait(60) for agent in running]
    finally:
        for agent in running:
            if agent.poll() is None:
                kill(agent)
    assert codes == [0, -signal.SIGKILL, 0]
    assert set(loaded) == {("2", True)}
    assert "100" in saved
