"""Worker processes on this machine: started once, fed with jobs, watched, and always ended."""

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType

from thinwire.demo.plan import Job
from thinwire.demo.worker import Message, Row, serve


class WorkerError(RuntimeError):
    """A worker failed, died or fell silent; the text says which and why."""


class Cluster:
    """`with Cluster(4) as cluster: rows = cluster.run(job, on_progress)`."""

    def __init__(self, workers: int, timeout_s: float = 120) -> None:
        self.workers = workers
        self.timeout_s = timeout_s  # the longest silence before a worker counts as stuck
        self._directory = tempfile.TemporaryDirectory(prefix="thinwire-")
        self.processes: list[SpawnProcess] = []
        self._connections: list[Connection] = []

    def __enter__(self) -> "Cluster":
        try:
            with _interrupts_ignored():  # inherited: Ctrl-C reaches this process only
                for rank in range(self.workers):
                    self._start(rank)
            self._collect("ready", _ignore)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            for rank in range(self.workers):
                self._send(rank, None)
            for process in self.processes:
                process.join(timeout=10)
        self._end()

    def run(self, job: Job, on_progress: Callable[[Message], None]) -> list[Row]:
        """Train `job` on all workers; the rows that rank 0 reports."""
        for rank in range(self.workers):
            self._send(rank, asdict(job))
        rows: list[Row] = self._collect("done", on_progress)[0]["rows"]
        return rows

    def _start(self, rank: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        store = str(Path(self._directory.name) / "store")
        process = context.Process(
            target=serve,
            args=(rank, self.workers, store, self.timeout_s, theirs),
            name=f"thinwire-demo-{rank}",
            daemon=True,
        )
        process.start()
        theirs.close()  # so that a dead worker reads as end of file
        self.processes.append(process)
        self._connections.append(ours)

    def _collect(self, kind: str, on_progress: Callable[[Message], None]) -> list[Message]:
        """One message of `kind` from every worker, in rank order."""
        answers: dict[int, Message] = {}
        deadline = time.monotonic() + self.timeout_s
        while len(answers) < self.workers:
            awaited = [c for rank, c in enumerate(self._connections) if rank not in answers]
            ready = wait(awaited, timeout=deadline - time.monotonic())
            if not ready:
                raise WorkerError(f"no word from the workers for {self.timeout_s:.0f} s")
            for rank, connection in enumerate(self._connections):
                if connection in ready:
                    message = self._receive(rank)
                    if message["kind"] == kind:
                        answers[rank] = message
                    else:
                        on_progress(message)
            deadline = time.monotonic() + self.timeout_s
        return [answers[rank] for rank in range(self.workers)]

    def _send(self, rank: int, job: dict[str, object] | None) -> None:
        try:
            self._connections[rank].send(job)
        except OSError:
            raise self._death(rank) from None

    def _receive(self, rank: int) -> Message:
        try:
            message: Message = self._connections[rank].recv()
        except (EOFError, OSError):
            raise self._death(rank) from None
        if message["kind"] == "failed":
            raise WorkerError(f"worker {rank} failed:\n{message['error']}")
        return message

    def _death(self, rank: int) -> WorkerError:
        self.processes[rank].join(timeout=1)
        return WorkerError(f"worker {rank} died (exit code {self.processes[rank].exitcode})")

    def _end(self) -> None:
        """End whatever still runs, by its process, and wait for it."""
        for connection in self._connections:
            connection.close()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
        self._directory.cleanup()


def _ignore(message: Message) -> None:
    """Nothing to show before the first job."""


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
