"""A cluster of real processes for tests: over the loopback, started once, always ended.

    def double(group, rank, size, x):       # at module level, so that a worker can import it
        return x * 2

    assert cluster.run(double, 3, 21) == [42, 42, 42]

Every run gets a process group of exactly the asked number of ranks, made from a fresh corner of
the store and destroyed afterwards: what goes wrong in one run cannot reach into the next. Gloo on
the CPU; `support.nccl` has the same cluster over NCCL on a GPU.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from thinwire.kernels._compile_once import compile_once

HOST = "127.0.0.1"
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
START_S = 120  # to import torch in every worker
GROUP_S = 20  # after which a process group gives up waiting for a rank
RUN_S = 60  # after which a run counts as hung
# Imported once, in the process that all workers of a session are forked from: torch alone takes a
# worker three seconds.
PRELOAD = ["torch", "numba", "pytest", "thinwire", "support.first_kernel"]


class ClusterError(AssertionError):
    """A worker failed, died or hung; the text says which and why."""


@dataclass(frozen=True)
class Returned:
    value: Any


@dataclass(frozen=True)
class Raised:
    """An exception that crossed a process boundary: its class, its ancestors, what it said."""

    name: str
    text: str
    trace: str = ""
    ancestors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.text}\n{self.trace}"

    def is_a(self, kind: type[BaseException]) -> bool:
        return kind.__name__ in self.ancestors


Outcome = Returned | Raised


@dataclass(frozen=True)
class Worker:
    """What a worker process is told when it starts."""

    rank: int
    port: int
    run_s: float
    group_s: float
    stack: Path
    backend: str
    environment: dict[str, str]


class Cluster:
    """Up to `size` worker processes, started by the first run and again after a hang."""

    backend = "gloo"
    # Whether the next run, of as many ranks, goes on with the group of one in which all went well.
    keeps_group = False

    def __init__(self, size: int = 8, run_s: float = RUN_S, group_s: float = GROUP_S) -> None:
        self.size, self.run_s, self.group_s = size, run_s, group_s
        self._processes: list[ForkServerProcess] = []
        self._connections: list[Connection] = []
        self._groups = 0
        self._kept = 0  # ranks of the group that the next run may go on with

    def environment(self, rank: int) -> dict[str, str]:
        """What a worker finds in its environment."""
        return {"GLOO_SOCKET_IFNAME": LOOPBACK}

    def run(
        self,
        function: Callable[..., Any],
        ranks: int,
        *args: Any,
        expect: type[BaseException] | None = None,
    ) -> list[Any]:
        """What `function(group, rank, size, *args)` returned, by rank.

        With `expect`, every rank must raise it; then what they raised, by rank.
        """
        outcomes = self.outcomes(function, ranks, *args)
        wrong = [
            f"rank {rank} of {ranks} {'raised ' if isinstance(o, Raised) else 'returned '}{o}"
            for rank, o in enumerate(outcomes)
            if isinstance(o, Raised) != (expect is not None)
            or (expect and isinstance(o, Raised) and not o.is_a(expect))
        ]
        if wrong:
            wanted = f" (expected {expect.__name__})" if expect else ""
            raise ClusterError(f"{function.__name__}{args}{wanted}\n" + "\n".join(wrong))
        return [o.value if isinstance(o, Returned) else o for o in outcomes]

    def outcomes(self, function: Callable[..., Any], ranks: int, *args: Any) -> list[Outcome]:
        """What became of every rank; a worker that died has raised `Died`."""
        outcomes = self._run(function, ranks, args, range(ranks))
        if any(isinstance(o, Raised) and o.name == "Died" for o in outcomes):
            self.close()
        self._kept = ranks if all(isinstance(o, Returned) for o in outcomes) else 0
        return outcomes

    def survivors(
        self, function: Callable[..., Any], ranks: int, lost: int, *args: Any
    ) -> list[Outcome]:
        """What became of all ranks but `lost`, of which no answer is awaited. Ends all workers."""
        try:
            return self._run(function, ranks, args, [r for r in range(ranks) if r != lost])
        finally:
            self.close()

    def _run(
        self,
        function: Callable[..., Any],
        ranks: int,
        args: tuple[Any, ...],
        awaited: Sequence[int],
    ) -> list[Outcome]:
        assert 1 <= ranks <= self.size, f"{ranks} ranks in a cluster of {self.size}"
        if not self._processes:
            self._start()
        if not self.keeps_group or self._kept != ranks:
            self._groups += 1
        try:
            for connection in self._connections[:ranks]:
                connection.send((self._groups, function, ranks, args))
            return self._collect(awaited, self.run_s, function.__name__)
        except BaseException:
            self.close()  # answers may still be on their way
            raise

    @property
    def pids(self) -> list[int]:
        """Of the workers that were started, by rank."""
        return [process.pid for process in self._processes if process.pid is not None]

    def close(self) -> None:
        """End the workers, each by its own process. The next run would start new ones."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join(timeout=5)
        if self._processes:
            self._stacks.cleanup()
        self._processes, self._connections, self._kept = [], [], 0

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self) -> None:
        self._store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._stacks = tempfile.TemporaryDirectory(prefix="thinwire-tests-")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):  # where they are found
            forkserver.ensure_running()
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            worker = Worker(
                rank,
                self._store.port,
                self.run_s,
                self.group_s,
                self._stack(rank),
                self.backend,
                self.environment(rank),
            )
            process = context.Process(
                target=_serve,
                args=(worker, theirs),
                name=f"rank-{rank}",
                daemon=True,
            )
            process.start()
            theirs.close()  # so that a dead worker reads as end of file
            self._processes.append(process)
            self._connections.append(ours)
        try:
            self._collect(range(self.size), START_S, "the start of the cluster")
        except BaseException:
            self.close()
            raise

    def _collect(self, ranks: Sequence[int], seconds: float, what: str) -> list[Outcome]:
        """One answer from each of these ranks, in their order, within `seconds`."""
        answers: dict[int, Outcome] = {}
        deadline = time.monotonic() + seconds
        while len(answers) < len(ranks):
            awaited = {self._connections[r]: r for r in ranks if r not in answers}
            ready = wait(list(awaited), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ClusterError(self._silence(sorted(awaited.values()), seconds, what))
            for connection in ready:
                rank = awaited[connection]
                try:
                    answers[rank] = connection.recv()
                except (EOFError, ConnectionResetError):
                    self._processes[rank].join(timeout=5)
                    code = self._processes[rank].exitcode
                    where = self._stack(rank).read_text()  # of a hang, else nothing
                    answers[rank] = Raised("Died", f"exit code {code} in {what}", where)
        return [answers[rank] for rank in ranks]

    def _silence(self, ranks: list[int], seconds: float, what: str) -> str:
        names = ", ".join(self._processes[r].name for r in ranks)
        stacks = "\n".join(
            f"{self._processes[r].name}:\n{self._stack(r).read_text()}" for r in ranks
        )
        return f"no answer from {names} within {seconds:.0f} s in {what}\n{stacks}"

    def _stack(self, rank: int) -> Path:
        return Path(self._stacks.name) / f"rank-{rank}.txt"


def _serve(worker: Worker, parent: Connection) -> None:
    """A worker's life: one run after the other, until the parent ends it or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    os.environ.update(worker.environment)
    compile_once()
    torch.set_num_threads(1)
    timeout = timedelta(seconds=worker.group_s)
    store = dist.TCPStore(HOST, worker.port, is_master=False, timeout=timeout)
    last = 0
    with worker.stack.open("w") as stack_file:
        parent.send(Returned("ready"))
        while True:
            try:
                group, *work = parent.recv()
            except EOFError:
                return
            # Only now: a rank that is done may not hang up on those still reading its last words.
            _leave(but_the_world=group == last)
            last = group
            # Should this run hang, the parent will want to know where; and were the parent gone,
            # nobody else would end it.
            faulthandler.dump_traceback_later(0.9 * worker.run_s, file=stack_file, exit=True)
            outcome = _once(worker, dist.PrefixStore(f"run-{group}", store), timeout, *work)
            faulthandler.cancel_dump_traceback_later()
            parent.send(outcome)


def _once(
    worker: Worker,
    store: dist.Store,
    timeout: timedelta,
    function: Callable[..., Any],
    ranks: int,
    args: tuple[Any, ...],
) -> Outcome:
    try:
        if not dist.is_initialized():
            dist.init_process_group(
                worker.backend, store=store, rank=worker.rank, world_size=ranks, timeout=timeout
            )
        return Returned(function(dist.group.WORLD, worker.rank, ranks, *args))
    except Exception as error:
        _leave()  # at once, so that nobody waits for this rank
        kind = type(error)
        trace = "".join(traceback.format_exception(error))
        ancestors = tuple(c.__name__ for c in kind.__mro__)
        return Raised(kind.__name__, str(error), trace, ancestors)


def _leave(but_the_world: bool = False) -> None:
    if not dist.is_initialized():
        return
    if not but_the_world:
        dist.destroy_process_group()
        return
    for group in list(c10d._world.pg_map):  # in the order in which they were made, on all ranks
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)
