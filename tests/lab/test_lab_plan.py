"""What a lab would do: shapes, commands, refusals. Needs neither root nor namespaces."""

import os
from typing import Any

import pytest

from thinwire.lab import Lab, LabError, Node
from thinwire.lab import namespaces as network_module
from thinwire.lab.launch import launches
from thinwire.lab.links import LinkShape, bits_per_second, seconds
from thinwire.lab.namespaces import LabNetwork, interface_bytes

NODES = [Node(i, f"10.77.0.{i + 1}", "eth0", f"ns-{i}") for i in range(2)]


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1gbit", 10**9), ("100Mbit", 10**8), ("2.5gbit/s", 25 * 10**8), ("64kbit", 64_000)],
)
def test_rates_are_read_as_tc_writes_them(text: str, bits: int) -> None:
    assert bits_per_second(text) == bits


@pytest.mark.parametrize("text", ["", "1", "fast", "1.2.3gbit", "-1gbit", "1gbyte", ".gbit"])
def test_other_rates_are_refused_by_name(text: str) -> None:
    with pytest.raises(LabError, match="rate"):
        bits_per_second(text)


def test_delays_are_read() -> None:
    assert seconds("5ms") == 0.005 and seconds("200us") == pytest.approx(2e-4)
    with pytest.raises(LabError, match="delay"):
        seconds("5")


@pytest.mark.parametrize(
    "settings", [{"rate": 0}, {"rate": 10, "burst": 10}, {"loss_percent": 100}, {"delay_s": -1}]
)
def test_impossible_shapes_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(LabError):
        LinkShape(**settings)


def test_the_burst_is_2_ms_of_the_rate_so_that_little_travels_at_once() -> None:
    assert LinkShape(10**9).burst_bytes == 250_000
    assert LinkShape(10**8).burst_bytes == 25_000
    assert LinkShape(10**6).burst_bytes == 16 * 1024


def test_a_plain_shape_is_a_token_bucket_at_both_ends() -> None:
    (bucket,) = LinkShape(10**9).at_the_node()
    assert bucket[:4] == ["root", "tbf", "rate", "1000000000bit"]
    assert LinkShape(10**9).at_the_port() == [bucket]
    assert LinkShape().at_the_node() == LinkShape().at_the_port() == []


def test_delay_and_loss_come_once_a_direction_and_before_the_rate() -> None:
    netem, bucket = LinkShape(10**9, delay_s=0.005, loss_percent=1.0).at_the_node()
    assert netem[:4] == ["root", "handle", "1:", "netem"]
    assert "5000us" in netem and "1.0%" in netem
    assert bucket[:2] == ["parent", "1:1"] and "tbf" in bucket
    assert "netem" not in LinkShape(10**9, delay_s=0.005).at_the_port()[0]


@pytest.mark.parametrize("torchrun", [["torchrun"], ["python", "-m", "torch.distributed.run"]])
def test_torchrun_is_told_its_nodes_before_the_script(torchrun: list[str]) -> None:
    first, second = launches([*torchrun, "train.py", "--nnodes", "mine"], NODES, 2, 29500)
    assert first.argv[: len(torchrun)] == torchrun
    assert second.argv[-3:] == ["train.py", "--nnodes", "mine"]
    options = second.argv[len(torchrun) : -3]
    told = dict(zip(options[::2], options[1::2], strict=True))
    assert told["--nnodes"] == "2" and told["--nproc-per-node"] == "2"
    assert told["--node-rank"] == "1" and told["--local-addr"] == "10.77.0.2"
    assert told["--master-addr"] == "10.77.0.1" and told["--master-port"] == "29500"


@pytest.mark.parametrize("option", ["--nnodes=2", "--nproc_per_node", "--standalone"])
def test_what_the_lab_sets_may_not_be_set(option: str) -> None:
    with pytest.raises(LabError, match=option):
        launches(["torchrun", option, "train.py"], NODES, 1, 29500)


def test_a_plain_command_runs_once_a_worker_with_the_variables_of_torchrun() -> None:
    found = launches(["python", "train.py"], NODES, 2, 29500)
    assert [one.env["RANK"] for one in found] == ["0", "1", "2", "3"]
    assert [one.env["LOCAL_RANK"] for one in found] == ["0", "1", "0", "1"]
    assert [one.env["GROUP_RANK"] for one in found] == ["0", "0", "1", "1"]
    assert all(one.env["WORLD_SIZE"] == "4" for one in found)
    assert all(one.env["MASTER_ADDR"] == "10.77.0.1" for one in found)
    assert all(one.env["GLOO_SOCKET_IFNAME"] == "eth0" for one in found)


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(LabError, match="command"):
        launches([], NODES, 1, 29500)
    with pytest.raises(LabError, match="workers_per_node"):
        launches(["true"], NODES, 0, 29500)


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
