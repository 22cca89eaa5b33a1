"""Refusals and counters.

Covers lab/holder.py.
"""

import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from thinwire.lab import Lab, LabError, unavailable
from thinwire.lab import holder as holder_module
from thinwire.lab.links import LinkShape
from thinwire.lab.namespaces import LabNetwork, interface_bytes

LAB = "from thinwire.lab import Lab\nwith Lab(1, None): pass"
# Inside a user namespace its root may set the limits of what lies below: here, nothing may.
FORBID = "echo 0 > /proc/sys/user/max_net_namespaces && exec setpriv --bounding-set -all"


def user_namespaces() -> bool:
    return not subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode


@pytest.mark.skipif(not user_namespaces(), reason="needs user namespaces, to forbid others in one")
def test_where_no_namespace_is_allowed_it_says_what_it_needs() -> None:
    command = ["unshare", "-Ur", "sh", "-c", f'{FORBID} "$@"', "sh", sys.executable, "-c", LAB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "LabError: network namespaces need root, or user namespaces" in done.stderr


def test_without_pyroute2_it_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyroute2.py").write_text("raise ImportError(name='pyroute2')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LabError, match=r"thinwire\[lab\]|need root"), Lab():
        pass


@pytest.mark.parametrize("nodes", [0, 251])
def test_too_few_and_too_many_nodes_are_refused(nodes: int) -> None:
    with pytest.raises(LabError, match="nodes"):
        LabNetwork(nodes, LinkShape())


def test_the_counters_of_an_interface_are_found_by_its_name() -> None:
    text = (
        "Inter-| Receive\n face |bytes\n  lo: 1 2 0 0 0 0 0 0 3 4 0\neth0: 5 6 0 0 0 0 0 0 7 8 0\n"
    )
    assert interface_bytes(text, "eth0") == ((7, 8), (5, 6))
    with pytest.raises(LabError, match="eth1"):
        interface_bytes(text, "eth1")


def test_the_loopback_needs_nothing_and_has_no_counters() -> None:
    with Lab(2, loopback=True) as lab:
        assert lab.run(["true"]) == 0
        assert lab.counters() == []


@pytest.mark.skipif(unavailable() is not None, reason="no lab here")
@pytest.mark.parametrize("answered", [False, True])
def test_a_holder_whose_lab_went_before_its_answer_ends_without_a_word(answered: bool) -> None:
    """As after Ctrl-C while the links are being made; or before the lab has read the answer."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        holder = subprocess.Popen(
            [sys.executable, "-P", holder_module.__file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
        )
        theirs.close()
        ours.sendall(b'{"do": "nothing that it knows"}\n')
        if answered:
            assert select.select([ours], [], [], 60)[0]
    _, said = holder.communicate(timeout=60)
    assert (holder.returncode, said) == (0, b"")
