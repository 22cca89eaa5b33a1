"""Real namespaces: they come, carry what they should, and go, however the lab ends.

Covers cli/lab.py.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import thinwire
from support.extras import CLI, needs
from support.signals import hear_signals
from thinwire.lab import Lab, LabError, RateCheck, unavailable
from thinwire.lab import lab as lab_module
from thinwire.lab.probe import check_rate
from thinwire.lab.watcher import marked

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


def namespace_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


@contextmanager
def namespaces_of(pids: Iterable[int]) -> Iterator[set[str]]:
    """Other ones than ours. They are held meanwhile: the number of one that is gone may at once be
    another's, of a lab in a test beside this one.
    """
    with ExitStack() as held:
        names = set()
        for pid in pids:
            held.enter_context(Path(f"/proc/{pid}/ns/net").open("rb"))
            names.add(namespace_of(pid))
        yield names - {namespace_of(os.getpid())}


def processes_in(namespaces: set[str]) -> list[int]:
    """Those that hold a namespace by being inside."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if namespace_of(int(path.name)) in namespaces:
                found.append(int(path.name))
        except OSError:
            continue  # gone
    return found


def companions_of(pid: int) -> list[int]:
    """The lab's children: its ranks, the holder and the watcher."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]


def has_ended(pid: int, within_s: float = 30.0) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)


@contextmanager
def waiting(workers: int = 2, code: str = WAITING) -> Iterator[subprocess.Popen[str]]:
    """The command line, with workers that wait for ever, all of them running."""
    options = ["--workers", str(workers), "--check", "skip", "--", PYTHON, "-c", code]
    process = subprocess.Popen(
        [PYTHON, "-c", COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=hear_signals,
    )
    assert process.stdout is not None
    try:
        for _ in range(workers):
            assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()


def test_namespaces_come_and_go() -> None:
    before = set(companions_of(os.getpid()))  # other tests' processes
    with ExitStack() as stack:
        with Lab(3, None) as lab:
            sleeping = lab.start(["sleep", "1000"])
            inside = stack.enter_context(namespaces_of(process.pid for process in sleeping))
            assert len(inside) == 3
            companions = set(companions_of(os.getpid())) - before
        assert processes_in(inside) == []
    assert all(has_ended(pid) for pid in companions)


def test_they_go_after_an_error_too() -> None:
    before = set(companions_of(os.getpid()))
    with pytest.raises(RuntimeError, match="mine"), Lab(2, None):
        companions = set(companions_of(os.getpid())) - before
        raise RuntimeError("mine")
    assert len(companions) == 2  # the holder and the watcher
    assert all(has_ended(pid) for pid in companions)


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITING


@needs(*CLI)
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, WAITING),
        (signal.SIGTERM, WAITING),
        (signal.SIGHUP, WAITING),
        (signal.SIGKILL, WAITING),
        (signal.SIGKILL, DEAF),
    ],
)
def test_any_signal_ends_the_workers_and_the_namespaces(number: int, code: str) -> None:
    with waiting(code=code) as process:
        mark, companions = f"thinwire-{process.pid}-0", companions_of(process.pid)
        workers = marked(mark)
        assert len(workers) == 2 and len(companions) == 4
        with namespaces_of(companions) as inside:
            assert len(inside) == 3  # two nodes and the hub
            process.send_signal(number)
            process.communicate(timeout=30)
            assert process.returncode != 0
            assert all(has_ended(pid) for pid in companions)
            assert marked(mark) == [] and processes_in(inside) == []


@needs(*CLI)
def test_two_at_once_end_each_by_itself() -> None:
    """The same addresses, other namespaces: what ends one leaves the other at work."""
    with waiting() as one, waiting() as other, ExitStack() as stack:
        marks = [f"thinwire-{process.pid}-0" for process in (one, other)]
        inside = [stack.enter_context(namespaces_of(marked(mark))) for mark in marks]
        assert [len(names) for names in inside] == [2, 2]
        assert inside[0].isdisjoint(inside[1])
        one.send_signal(signal.SIGINT)
        one.communicate(timeout=30)
        assert marked(marks[0]) == [] and processes_in(inside[0]) == []
        assert len(marked(marks[1])) == 2 and other.poll() is None
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=30)
        assert marked(marks[1]) == [] and processes_in(inside[1]) == []


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
    with pytest.raises(LabError, match="no-such-program"):
        pair.run(["no-such-program"])


def test_the_rate_is_checked_at_the_start() -> None:
    with Lab(2, "100mbit") as lab:
        assert lab.rate_check is not None
        assert lab.rate_check.asked == 1e8 and lab.rate_check.holds
        # The check's own traffic is not counted, but for the last words of its connections.
        assert lab.counters()[0].bytes_sent < 10_000


def test_a_link_of_another_rate_is_found_out() -> None:
    with Lab(2, "20mbit", check="skip") as lab:
        assert lab.rate_check is None
        assert lab.network is not None
        found = check_rate(lab.network, *lab.nodes, 10**7)
        assert not found.holds and found.measured > found.asked


def test_a_rate_that_is_not_reached_is_refused_or_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab_module, "check_rate", lambda *_: RateCheck(1e9, 0.5e9))
    refusal = r"asked for 1000 Mbit/s, measured 500 \(50\.0 % off\).* a rate that it reaches"
    with pytest.raises(LabError, match=refusal), Lab(2):
        pass
    with pytest.warns(UserWarning, match="do not carry"), Lab(2, check="warn") as lab:
        assert lab.run(["true"]) == 0


def test_the_counters_count_what_was_sent(pair: Lab) -> None:
    megabytes = 8
    before = pair.counters()
    send(pair, megabytes * 1_000_000)
    sender, receiver = (late - early for late, early in zip(pair.counters(), before, strict=True))
    assert megabytes * 1e6 <= sender.bytes_sent <= 1.1 * megabytes * 1e6
    assert megabytes * 1e6 <= receiver.bytes_received <= 1.1 * megabytes * 1e6
    assert sender.bytes_received < 0.1 * megabytes * 1e6


SEND = r"""
import os, socket
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "1":
    with socket.create_server(("0.0.0.0", address[1])) as server:
        server.settimeout(20)
        os.write(1, b"ready\n")
        with server.accept()[0] as incoming:
            while incoming.recv(1 << 20):
                pass
else:
    input()
    with socket.create_connection(("10.77.0.2", address[1]), timeout=20) as outgoing:
        outgoing.sendall(bytes(%d))
"""


def send(lab: Lab, size: int) -> None:
    """Over TCP from the first node to the second, until all has arrived."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    first, second = lab.start([PYTHON, "-c", SEND % size], **pipes)
    assert second.stdout is not None and second.stdout.readline() == "ready\n"
    first.communicate("go\n", timeout=60)
    second.communicate(timeout=60)
    lab.end_processes()


def test_there_is_no_way_out(pair: Lab) -> None:
    code = (
        "import errno, socket, sys; "
        "sys.exit(socket.socket().connect_ex(('192.0.2.1', 9)) != errno.ENETUNREACH)"
    )
    assert pair.run([PYTHON, "-c", code], timeout_s=60) == 0


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
    assert marked(f"thinwire-{process.pid}-0") == []


ORDINARY = r"""
import os
from thinwire.lab import Lab
with Lab(2, "100mbit") as lab:
    print(lab.rate_check)
    assert lab.rate_check.holds
    assert lab.run(["sh", "-c", f"test $(id -u) = {os.getuid()}"], timeout_s=60) == 0
    assert lab.counters()[0].bytes_received < 10_000
print("done as", os.getuid())
"""


def python_of_a_user(user: int) -> str:
    """This Python, or the system's of the same version, whichever an ordinary user may run."""
    system = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")
    for python in filter(None, (PYTHON, system)):
        with suppress(PermissionError):
            subprocess.run([python, "-c", ""], user=user, check=True, timeout=60)
            return python
    pytest.skip(f"user {user} may run neither {PYTHON} nor a Python of the system")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs the tests: all of them show")
def test_an_ordinary_user_has_a_lab_in_a_user_namespace() -> None:
    nobody = 65534
    allowed = subprocess.run(["unshare", "-Urn", "true"], user=nobody, capture_output=True)
    if allowed.returncode:
        pytest.skip(f"no user namespaces here: {allowed.stderr.decode()}")
    ours = ["test", "-r", thinwire.__file__]
    if subprocess.run(ours, user=nobody, group=nobody, extra_groups=[]).returncode:
        pytest.skip("an ordinary user may not read this checkout")
    with tempfile.TemporaryDirectory() as caches:
        Path(caches).chmod(0o777)
        found = {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": caches}
        done = subprocess.run(
            [python_of_a_user(nobody), "-c", ORDINARY],
            user=nobody,
            group=nobody,
            extra_groups=[],
            env={**os.environ, **found},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert f"done as {nobody}" in done.stdout


def test_delay_is_seen_where_the_kernel_has_netem() -> None:
    code = (
        "import os, socket, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    start = time.perf_counter()\n"
        "    socket.socket().connect_ex(('10.77.0.2', 9))\n"
        "    print(time.perf_counter() - start)\n"
    )
    try:
        with Lab(2, "100mbit", delay="30ms", loss=0.01, check="skip") as lab:
            first, _ = lab.start([PYTHON, "-c", code], stdout=subprocess.PIPE)
            assert float(first.communicate(timeout=60)[0]) >= 0.06  # a law of netem: there and back
    except LabError as error:
        assert "netem" in str(error)
        pytest.skip(str(error))
