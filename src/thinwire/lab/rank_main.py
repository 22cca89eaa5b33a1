"""One rank of a benchmark: reads cases from stdin, one JSON object a line, answers on stdout.

    python -m thinwire.lab.rank_main thinwire.bench.sync.case:measure

The function is called with each case, the rank and a way to report a step, with a note or
without. The process group is the world's, new for every case; lines are
`{"kind": "ready" | "step" | "done" | "failed", ...}`.
"""

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from thinwire.lab.namespaces import interface_bytes

Case = dict[str, Any]
Message = dict[str, Any]
TIMEOUT = timedelta(minutes=10)  # for a dense step over a very slow link


class ReportStep(Protocol):
    """Is called after each step, with a note for the user or without."""

    def __call__(self, note: str = "") -> None: ...


Measure = Callable[[Case, int, ReportStep], Message]


def main(target: str) -> None:
    answers = _claim_stdout()
    torch.set_num_threads(1)  # the ranks share the machine's cores
    module, _, name = target.partition(":")
    measure: Measure = getattr(importlib.import_module(module), name)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, world, is_master=rank == 0, timeout=TIMEOUT)

    def say(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def report_step(note: str = "") -> None:
        if rank == 0:
            say({"kind": "step", "note": note})

    say({"kind": "ready"})
    for number, line in enumerate(sys.stdin):
        # Only now: a rank that is done may not hang up on those still reading its last words.
        _leave()
        busy_before = time.process_time()
        try:
            corner = PrefixStore(f"case-{number}", store)
            dist.init_process_group(
                "gloo", store=corner, rank=rank, world_size=world, timeout=TIMEOUT
            )
            answer = measure(json.loads(line), rank, report_step)
            cpu_seconds = time.process_time() - busy_before
            say({"kind": "done", "cpu_seconds": cpu_seconds, **answer})
        except Exception:
            _leave()  # at once, so that no other rank waits for this one
            say({"kind": "failed", "error": traceback.format_exc()})


def _claim_stdout() -> TextIO:
    """Answers have the real stdout to themselves; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def own_link_bytes() -> int | None:
    """Bytes this rank's node has sent over its link so far; None on the loopback."""
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    if interface in ("lo", "lo0"):
        return None
    sent, _ = interface_bytes(Path("/proc/self/net/dev").read_text(), interface)
    return sent[0]


if __name__ == "__main__":
    main(sys.argv[1])
