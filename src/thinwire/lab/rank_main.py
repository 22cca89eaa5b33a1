"""One rank of a benchmark: reads cases from stdin, one JSON object a line, answers on stdout.

    python -m thinwire.lab.rank_main thinwire.bench.sync.case:measure cpu

The function is called with each case, the rank and a way to report a step, with a note or
without. The process group is the world's, new for every case: Gloo, or with `cuda` NCCL on the
rank's card; lines are `{"kind": "ready" | "step" | "done" | "failed", ...}`.

Where THINWIRE_DEADLINE_S is set, a rank that takes longer for its start or for a case writes where
it is and ends.
"""

import faulthandler
import gc
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
import torch.distributed as dist

from thinwire.frontends.torch_private import PrefixStore, TCPStore
from thinwire.kernels._compile_once import compile_once
from thinwire.lab.namespaces import interface_bytes

Case = dict[str, Any]
Message = dict[str, Any]
TIMEOUT = timedelta(minutes=10)  # for a dense step over a very slow link
DEADLINE = "THINWIRE_DEADLINE_S"


class ReportStep(Protocol):
    """Is called after each step, with a note for the user or without."""

    def __call__(self, note: str = "") -> None: ...


Measure = Callable[[Case, int, ReportStep], Message]


def main(target: str, device: str) -> None:
    answers = _claim_stdout()

    def say(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    with _deadline():
        torch.set_num_threads(1)  # the ranks share the machine's cores
        compile_once()
        module, _, name = target.partition(":")
        measure: Measure = getattr(importlib.import_module(module), name)
        gc.freeze()  # a case that collects garbage need not look through all modules each time
        world = _World(device)
    say({"kind": "ready"})
    for number, line in enumerate(sys.stdin):
        with _deadline():
            _answer(line, number, measure, world, say)


class _World:
    """The ranks, met once; a process group for each case."""

    def __init__(self, device: str) -> None:
        self.rank, self._size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        master = self.rank == 0
        self._store = TCPStore(address, port, self._size, is_master=master, timeout=TIMEOUT)
        self.card: torch.device | None = None
        if device == "cuda":
            self.card = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.card)

    def join(self, number: int) -> None:
        # Only now: a rank that is done may not hang up on those still reading its last words.
        self.leave()
        dist.init_process_group(
            "gloo" if self.card is None else "nccl",
            store=PrefixStore(f"case-{number}", self._store),
            rank=self.rank,
            world_size=self._size,
            timeout=TIMEOUT,
            device_id=self.card,
        )

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


def _answer(
    line: str, number: int, measure: Measure, world: _World, say: Callable[[Message], None]
) -> None:
    def report_step(note: str = "") -> None:
        if world.rank == 0:
            say({"kind": "step", "note": note})

    busy_before = time.process_time()
    try:
        world.join(number)
        answer = measure(json.loads(line), world.rank, report_step)
        cpu_seconds = time.process_time() - busy_before
        say({"kind": "done", "cpu_seconds": cpu_seconds, **answer})
    except Exception:
        error = traceback.format_exc()
        if world.card is None:
            world.leave()  # at once, so that no other rank waits for this one
        # A group on a card may not come down while its kernels wait: `ranks.py` ends the rank.
        say({"kind": "failed", "error": error})


@contextmanager
def _deadline() -> Iterator[None]:
    seconds = os.environ.get(DEADLINE)
    if seconds is None:
        yield
        return
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _claim_stdout() -> TextIO:
    """Answers have the real stdout to themselves; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def own_link_bytes() -> int | None:
    """Bytes this rank's node has sent over its link so far; None on the loopback."""
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    if interface in ("lo", "lo0"):
        return None
    sent, _ = interface_bytes(Path("/proc/self/net/dev").read_text(), interface)
    return sent[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
