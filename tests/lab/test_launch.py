"""What each node is told to run."""

import pytest

from thinwire.lab import LabError, Node
from thinwire.lab.launch import launches

NODES = [Node(i, f"10.77.0.{i + 1}", "eth0") for i in range(2)]


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


def test_ranks_on_cards_see_one_each_and_are_hosts_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_MAX_CTAS", "7")
    monkeypatch.delenv("NCCL_MAX_NCHANNELS", raising=False)
    found = [one.env for one in launches(["python", "train.py"], NODES, 2, 29500, ["2", "5"])]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in found] == ["2", "5", "2", "5"]
    assert [env["NCCL_HOSTID"] for env in found] == ["h0", "h1", "h2", "h3"]
    assert all(env["LOCAL_RANK"] == "0" and env["NCCL_IB_DISABLE"] == "1" for env in found)
    assert all(env["NCCL_MAX_CTAS"] == "7" for env in found)
    assert all(env["NCCL_MAX_NCHANNELS"] == "2" for env in found)


def test_torchrun_on_cards_needs_a_node_for_each_rank() -> None:
    found = launches(["torchrun", "train.py"], NODES, 1, 29500, ["0"])
    assert [one.env["NCCL_HOSTID"] for one in found] == ["h0", "h1"]
    with pytest.raises(LabError, match="2 a node"):
        launches(["torchrun", "train.py"], NODES, 2, 29500, ["0"])
