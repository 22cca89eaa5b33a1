"""Scripts as torchrun would start them, without what that takes.

Each rank of torchrun imports PyTorch, and the frameworks of some scripts, for ten seconds and more.
Here one process imports them and forks the ranks of every script; these find in their environment
what torchrun would have put there, and meet at a store of the test's, as at an agent's.
"""

import faulthandler
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from support.cluster import HOST, LOOPBACK

FRAMEWORKS = (
    *("torch.distributed.fsdp", "torch._dynamo", "accelerate", "lightning"),
    *("transformers.trainer", "transformers.models.gpt2.modeling_gpt2"),
    "transformers.models.bert.modeling_bert",
)
RUN_S = 200


@dataclass(frozen=True)
class Done:
    """A script's end: the status of each rank, and what all of them printed."""

    codes: list[int]
    printed: str


class Stage:
    """The process that scripts are forked from. It ends when it is closed, or with its parent."""

    def __init__(self, *imported: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "support.stage", "thinwire", "numba", *imported],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: Path, ranks: int, nodes: int = 1) -> Done:
        """Run it with so many ranks, shared out over so many nodes."""
        assert self._server.stdin is not None and self._server.stdout is not None
        store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        with tempfile.NamedTemporaryFile("r") as printed:
            order = [str(script), ranks, nodes, store.port, printed.name]
            print(json.dumps(order), file=self._server.stdin, flush=True)
            codes = json.loads(self._server.stdout.readline())
            return Done(codes, printed.read())

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


def serve() -> None:
    for name in sys.argv[1:]:
        with suppress(ModuleNotFoundError):  # the tests of those that are missing are skipped
            importlib.import_module(name)
    for line in sys.stdin:
        script, ranks, nodes, port, printed = json.loads(line)
        started = [fork(script, rank, ranks, nodes, port, printed) for rank in range(ranks)]
        print(json.dumps(codes_of(started)), flush=True)


def codes_of(started: list[int]) -> list[int]:
    """The status of each; when one has failed, the others are ended."""
    codes: dict[int, int] = {}
    while len(codes) < len(started):
        pid, status = os.wait()
        codes[pid] = os.waitstatus_to_exitcode(status)
        if codes[pid] > 0:
            for other in set(started) - set(codes):
                os.kill(other, signal.SIGKILL)
    return [codes[pid] for pid in started]


def fork(script: str, rank: int, ranks: int, nodes: int, port: int, printed: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(printed, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1), os.dup2(output, 2)
        faulthandler.dump_traceback_later(RUN_S, exit=True, file=sys.__stderr__)
        os.environ.update(environment(rank, ranks, nodes, port))
        sys.argv = [script]
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def environment(rank: int, ranks: int, nodes: int, port: int) -> dict[str, str]:
    local = ranks // nodes
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local),
        "GROUP_WORLD_SIZE": str(nodes),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"stage-{port}",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": LOOPBACK,
    }


if __name__ == "__main__":
    serve()
