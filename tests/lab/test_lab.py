"""Real namespaces: they come, carry what they should, and go, however the lab ends.

Covers cli/lab.py.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.extras import CLI, needs
from thinwire.lab import Lab, LabError, RateCheck, entered, unavailable
from thinwire.lab import lab as lab_module
from thinwire.lab.links import LinkShape
from thinwire.lab.namespaces import NAMESPACES, remove_stale
from thinwire.lab.probe import check_rate
from thinwire.lab.processes import marked

REASON = unavailable()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no lab here: {REASON}")

COMMAND = "import typer; from thinwire.cli.lab import lab; typer.run(lab)"
# Workers share one pipe: os.write keeps their lines whole.
WAITING = "import os, signal; os.write(1, b'ready\\n'); signal.pause()"
PYTHON = sys.executable


@pytest.fixture(scope="module")
def pair() -> Iterator[Lab]:
    """Two nodes on fast links."""
    with Lab(2, "1gbit", check="skip") as lab:
        yield lab


def left_of(pid: int) -> list[str]:
    return [path.name for path in NAMESPACES.glob(f"thinwire-{pid}-*")]


def start_waiting(workers: int = 2) -> subprocess.Popen[str]:
    """The command line, with workers that wait for ever, all of them running."""
    options = ["--workers", str(workers), "--check", "skip", "--", PYTHON, "-c", WAITING]
    process = subprocess.Popen(
        [PYTHON, "-c", COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(workers):
        assert process.stdout.readline() == "ready\n"
    return process


def test_namespaces_come_and_go() -> None:
    before = set(left_of(os.getpid()))
    with Lab(3, None) as lab:
        names = {node.namespace for node in lab.nodes}
        assert names < set(left_of(os.getpid()))
    assert set(left_of(os.getpid())) == before


def test_they_go_after_an_error_too() -> None:
    before = left_of(os.getpid())
    with pytest.raises(RuntimeError, match="mine"), Lab(2, None):
        raise RuntimeError("mine")
    assert left_of(os.getpid()) == before


@needs(*CLI)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_workers_and_removes_the_namespaces(number: int) -> None:
    process = start_waiting()
    assert left_of(process.pid)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert left_of(process.pid) == []
    assert marked(f"thinwire-{process.pid}-0") == []


@needs(*CLI)
def test_what_a_lab_left_that_was_killed_outright_goes_with_the_next() -> None:
    process = start_waiting()
    process.kill()
    process.communicate(timeout=30)  # to the end of stdout: its workers have ended as well
    assert left_of(process.pid)
    remove_stale()
    assert left_of(process.pid) == []


def test_a_failing_worker_ends_the_others_and_gives_its_status(pair: Lab) -> None:
    code = "import os, signal, sys; sys.exit(3) if os.environ['RANK'] == '1' else signal.pause()"
    assert pair.run([PYTHON, "-c", code], 2, timeout_s=60) == 3
    assert marked(pair.name) == []


def test_what_a_worker_left_behind_is_ended(pair: Lab) -> None:
    assert pair.run(["sh", "-c", "setsid sleep 1000 > /dev/null & true"], timeout_s=60) == 0
    assert marked(pair.name) == []


def test_a_command_that_takes_too_long_is_ended(pair: Lab) -> None:
    with pytest.raises(LabError, match=r"within 0\.1 s"):
        pair.run(["sleep", "1000"], timeout_s=0.1)
    assert marked(pair.name) == []


def test_a_missing_program_is_named(pair: Lab) -> None:
    assert pair.run(["no-such-program"], stderr=subprocess.DEVNULL) != 0


def test_the_rate_is_checked_at_the_start() -> None:
    with Lab(2, "100mbit") as lab:
        assert lab.rate_check is not None
        assert lab.rate_check.asked == 1e8 and lab.rate_check.holds
        assert lab.counters()[0].bytes_sent == 0  # the check's own traffic is not counted


def test_a_link_of_another_rate_is_found_out() -> None:
    with Lab(2, "20mbit", check="skip") as lab:
        assert lab.rate_check is None
        found = check_rate(*lab.nodes, LinkShape(rate=10**7))
        assert not found.holds and found.measured > found.asked


def test_a_rate_that_is_not_reached_is_refused_or_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab_module, "check_rate", lambda *_: RateCheck(1e9, 0.5e9))
    with pytest.raises(LabError, match=r"do not carry .* 500 \(50\.0 % off\)"), Lab(2):
        pass
    with pytest.warns(UserWarning, match="do not carry"), Lab(2, check="warn") as lab:
        assert lab.run(["true"]) == 0


def test_the_counters_count_what_was_sent(pair: Lab) -> None:
    megabytes = 8
    before = pair.counters()
    send(pair, bytes(1_000_000), megabytes)
    sender, receiver = (late - early for late, early in zip(pair.counters(), before, strict=True))
    assert megabytes * 1e6 <= sender.bytes_sent <= 1.1 * megabytes * 1e6
    assert megabytes * 1e6 <= receiver.bytes_received <= 1.1 * megabytes * 1e6
    assert sender.bytes_received < 0.1 * megabytes * 1e6


def send(lab: Lab, piece: bytes, times: int) -> None:
    """Over TCP from the first node to the second, until all has arrived."""
    source, sink = lab.nodes
    assert source.namespace and sink.namespace
    with entered(sink.namespace):
        listener = socket.create_server((sink.address, 0))
    with entered(source.namespace):
        outgoing = socket.create_connection(listener.getsockname(), timeout=20)
    incoming, _ = listener.accept()
    incoming.settimeout(20)

    def send_all() -> None:
        with outgoing:
            for _ in range(times):
                outgoing.sendall(piece)

    thread = threading.Thread(target=send_all)
    thread.start()
    with listener, incoming:
        while incoming.recv(1 << 20):
            pass
    thread.join()


def test_there_is_no_way_out(pair: Lab) -> None:
    assert pair.nodes[0].namespace
    with (
        entered(pair.nodes[0].namespace),
        socket.socket() as outside,
        pytest.raises(OSError) as raised,
    ):
        outside.connect(("192.0.2.1", 9))
    assert raised.value.errno == errno.ENETUNREACH


def test_workers_find_their_rank_their_master_and_their_interface(pair: Lab) -> None:
    code = (
        "import json, os, socket; print(json.dumps([dict(os.environ), "
        "[name for _, name in socket.if_nameindex()]]))"
    )
    workers = pair.start([PYTHON, "-c", code], 2, stdout=subprocess.PIPE)
    told = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]
    pair.end_processes()
    assert [env["RANK"] for env, _ in told] == ["0", "1", "2", "3"]
    assert {env["MASTER_ADDR"] for env, _ in told} == {pair.nodes[0].address}
    assert all(env["GLOO_SOCKET_IFNAME"] in interfaces for env, interfaces in told)


ALL_REDUCE = r"""
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1000,), float(dist.get_rank()))
dist.all_reduce(x)
os.write(1, f"sum {x[-1].item()} of {dist.get_world_size()}\n".encode())
dist.destroy_process_group()
"""


@needs(*CLI)
def test_torchrun_reduces_over_two_nodes(tmp_path: Path) -> None:
    script, counters = tmp_path / "all_reduce.py", tmp_path / "counters.json"
    script.write_text(ALL_REDUCE)
    options = ["--workers", "2", "--check", "skip", "--json", str(counters)]
    torchrun = [PYTHON, "-m", "torch.distributed.run", str(script)]
    done = subprocess.run(
        [PYTHON, "-c", COMMAND, *options, "--", *torchrun],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["sum 1.0 of 2"] * 2
    assert "10.77.0.2" in done.stderr and "MB sent" in done.stderr
    content = json.loads(counters.read_text())
    assert content["schema"] == 1 and content["machine"]["cores"] >= 1
    assert all(row["bytes_sent"] > 4000 for row in content["rows"])


@needs(*CLI)
def test_the_command_gives_back_the_status_and_leaves_nothing() -> None:
    options = ["--workers", "2", "--rate", "none", "--", "sh", "-c", "exit 5"]
    process = subprocess.Popen([PYTHON, "-c", COMMAND, *options], stderr=subprocess.DEVNULL)
    assert process.wait(timeout=60) == 5
    assert left_of(process.pid) == []
