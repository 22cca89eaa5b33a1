"""Nodes of torchrun in a lab, on the CPU or on cards, and their ranks, which end whatever happens.

python -m support.elastic_lab agent DEADLINE_S RUN_ID    on each node, as the lab starts commands
python -m support.elastic_lab rank DEADLINE_S            what the agent starts
"""

import faulthandler
import importlib.util
import os
import socket
import sys
import traceback
from datetime import timedelta

LATER_S = 30  # an agent's deadline, so that it can tell of its rank
STEPS, EVERY = 30, 5
PATIENCE = timedelta(seconds=10)


def agent(deadline_s: str, run_id: str) -> None:
    from support.elastic_nodes import node

    number, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    worker, until = ["-m", "support.elastic_lab", "rank", deadline_s], float(deadline_s) + LATER_S
    node(number, worker, run_id, nodes, f"{master}:{port}", own_address(master, port), until)


def own_address(peer: str, port: int) -> str:
    """By which this node is reached from the others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        unsent.connect((peer, port))
        return str(unsent.getsockname()[0])


def rank(deadline_s: str) -> None:
    """The example, with fewer steps and less patience."""
    faulthandler.dump_traceback_later(float(deadline_s), exit=True)
    from support.elastic import EXAMPLE

    spec = importlib.util.spec_from_file_location("elastic_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.STEPS, example.EVERY, example.PATIENCE = STEPS, EVERY, PATIENCE
    try:
        example.main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # kernels may still wait for the lost rank, and an ordinary end for them


if __name__ == "__main__":
    {"agent": agent, "rank": rank}[sys.argv[1]](*sys.argv[2:])
