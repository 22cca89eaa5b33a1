"""What needs neither root nor namespaces: refusals and counters."""

import os

import pytest

from thinwire.lab import Lab, LabError
from thinwire.lab import namespaces as network_module
from thinwire.lab.links import LinkShape
from thinwire.lab.namespaces import LabNetwork, interface_bytes


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="root"), Lab():
        pass


def test_without_ip_it_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(network_module, "SEARCH_PATH", "")
    with pytest.raises(LabError, match="iproute2"), Lab():
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
