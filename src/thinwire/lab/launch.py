"""What each node is told to run: torchrun once, or a plain command once per worker."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import LabError
from thinwire.lab.namespaces import Node

_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
_SET_BY_THE_LAB = (
    *("nnodes", "nproc-per-node", "node-rank", "local-addr", "standalone"),
    *("master-addr", "master-port", "rdzv-backend", "rdzv-endpoint"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start."""

    node: Node
    argv: list[str]
    env: dict[str, str]


def launches(
    command: Sequence[str],
    nodes: Sequence[Node],
    workers_per_node: int,
    port: int,
    cards: Sequence[str] | None = None,
) -> list[Launch]:
    """In rank order. torchrun gets its options, any other command the variables it would set.

    With `cards`, as CUDA_VISIBLE_DEVICES names them, each rank sees one, and NCCL takes each for
    a host of its own.
    """
    if not command:
        raise LabError("there is no command to run")
    if workers_per_node < 1:
        raise LabError(f"workers_per_node={workers_per_node} must be at least 1")
    environments = {node: _environment(node, len(nodes) * workers_per_node) for node in nodes}
    first = _first_option_of_torchrun(command)
    if first is None:
        return [
            Launch(node, list(command), environment | variables | _card_variables(rank, cards))
            for node, environment in environments.items()
            for rank, variables in _rank_variables(node, nodes, workers_per_node, port)
        ]
    torchrun, rest = command[:first], command[first:]
    _refuse_options_of_the_lab(rest)
    if cards and workers_per_node > 1:
        raise LabError(
            f"on GPUs torchrun needs a node for each rank, and here are {workers_per_node} a node: "
            "take as many nodes as workers"
        )
    return [
        Launch(
            node,
            [*torchrun, *_node_options(node, nodes, workers_per_node, port), *rest],
            environment | _card_variables(node.index, cards),
        )
        for node, environment in environments.items()
    ]


def _first_option_of_torchrun(command: Sequence[str]) -> int | None:
    """Where torchrun's own options begin; None if this is not torchrun."""
    if Path(command[0]).name == "torchrun":
        return 1
    for i, word in enumerate(command[:-1]):
        if word == "-m" and command[i + 1] in _TORCHRUN:
            return i + 2
    return None


def _refuse_options_of_the_lab(options: Sequence[str]) -> None:
    for word in options:
        if not word.startswith("-"):
            return  # the script: what follows is its own
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        if name in _SET_BY_THE_LAB:
            raise LabError(f"leave out {word}: the lab tells torchrun where its nodes are")


def _node_options(node: Node, nodes: Sequence[Node], workers_per_node: int, port: int) -> list[str]:
    options = {
        "--nnodes": len(nodes),
        "--nproc-per-node": workers_per_node,
        "--node-rank": node.index,
        "--master-addr": nodes[0].address,
        "--master-port": port,
        "--local-addr": node.address,  # or torchrun asks a name server that is not there
    }
    return [str(word) for option in options.items() for word in option]


def _environment(node: Node, world: int) -> dict[str, str]:
    threads = max(1, (os.cpu_count() or 1) // world)  # all nodes share this machine's cores
    return {
        "GLOO_SOCKET_IFNAME": node.interface,
        "NCCL_SOCKET_IFNAME": node.interface,
        "TP_SOCKET_IFNAME": node.interface,
        # torchrun and python are those beside thinwire, also where no environment is active.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        # Every connection would be warned of: there is no name server to ask for the peer's name.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }


def _rank_variables(
    node: Node, nodes: Sequence[Node], workers_per_node: int, port: int
) -> Iterator[tuple[int, dict[str, str]]]:
    for local in range(workers_per_node):
        rank = node.index * workers_per_node + local
        variables = {
            "RANK": rank,
            "LOCAL_RANK": local,
            "WORLD_SIZE": len(nodes) * workers_per_node,
            "LOCAL_WORLD_SIZE": workers_per_node,
            "GROUP_RANK": node.index,
            "GROUP_WORLD_SIZE": len(nodes),
            "MASTER_ADDR": nodes[0].address,
            "MASTER_PORT": port,
        }
        yield rank, {name: str(value) for name, value in variables.items()}


def _card_variables(rank: int, cards: Sequence[str] | None) -> dict[str, str]:
    if not cards:
        return {}
    return {
        "CUDA_VISIBLE_DEVICES": cards[rank % len(cards)],
        "LOCAL_RANK": "0",  # scripts take it for the card, and a rank sees one
        # NCCL refuses two ranks on one card of one host; hosts it takes apart by this name.
        "NCCL_HOSTID": f"h{rank}",
        "NCCL_IB_DISABLE": "1",
        # NCCL's waiting kernels hold what others here need; and pieces of 128 KiB, as it cuts
        # messages between two ranks by itself, take an all-to-all over sockets twice as long.
        **_kept(NCCL_MAX_CTAS="2", NCCL_MAX_NCHANNELS="2", NCCL_P2P_NET_CHUNKSIZE="524288"),
    }


def _kept(**defaults: str) -> dict[str, str]:
    """As the user has set them, or these."""
    return {name: os.environ.get(name, value) for name, value in defaults.items()}
