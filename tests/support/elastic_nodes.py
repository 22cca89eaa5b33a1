"""Nodes of torchrun without its start: each is a fork of this process, which has imported torch.

    python -m support.elastic_nodes SCRIPT RUN_ID NODES

What torchrun does behind its command line: an elastic agent for each node, with one worker that
runs the script. First come the agents' process ids, in one line, and last how they ended; the
first keeps the rendezvous, and one of them may be lost.
"""

import faulthandler
import os
import sys
import traceback
from collections.abc import Sequence

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from thinwire.lab.lab import free_port

DEADLINE_S = 240
HOST = "127.0.0.1"
# Of lost nodes one hears by their silence; but a busy machine may be silent too.
RENDEZVOUS = {
    "join_timeout": 200,
    "last_call_timeout": 5,
    "keep_alive_interval": 1,
    "keep_alive_max_attempt": 4,
}


# Otherwise agents keep the first round's store for the workers, and where the first node of a later
# round is another (torch 2.13, DynamicRendezvousHandler.next_rendezvous), half of them wait for it.
STORE_OF_EACH_ROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def node(
    number: int,
    worker: Sequence[str],
    run_id: str,
    nodes: int,
    endpoint: str,
    address: str = HOST,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Its agent, to the end. The worker: what Python is given to run."""
    faulthandler.dump_traceback_later(deadline_s, exit=True)
    os.environ.update(STORE_OF_EACH_ROUND)
    config = LaunchConfig(
        min_nodes=nodes - 1,
        max_nodes=nodes,
        nproc_per_node=1,
        run_id=run_id,
        max_restarts=3,
        rdzv_backend="c10d",
        rdzv_endpoint=endpoint,
        rdzv_configs=RENDEZVOUS | {"is_host": number == 0},
        local_addr=address,
        monitor_interval=0.1,
    )
    elastic_launch(config, sys.executable)(*worker)


def main() -> None:
    script, run_id, nodes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    endpoint, agents = f"{HOST}:{free_port()}", []
    for number in range(nodes):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                node(number, [script], run_id, nodes, endpoint)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        agents.append(pid)
    print(*agents, flush=True)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in agents]
    print("ended", *codes, flush=True)


if __name__ == "__main__":
    main()
