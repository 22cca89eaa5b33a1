"""One ordered worker: exchanges run beside the backward pass, in the same order on every rank.

A blocking collective inside a future's callback deadlocks as soon as there are two; a thread
that takes one job after the other cannot. On GPUs its kernels go to a stream of their own.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
HIGHEST = -1  # a stream's priority: others wait for what we exchange


class OrderedWorker:
    """A thread that does jobs one by one; each sees what the caller's stream had queued."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="thinwire")
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._closed = False

    def submit(
        self, device: torch.device, job: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """Queue a job whose tensors live on `device`."""
        return self._thread.submit(self._on_stream(device, partial(job, *args, **kwargs)))

    def submit_in_turn(
        self, device: torch.device, job: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """For callers who launch collectives on a GPU themselves: there the job is done at once.

        The kernels of two groups wait for each other where one rank launched them in one order
        and another rank in the other, and the device has no room for both: all launches then
        come from one thread, whose order is the same on all ranks.
        """
        if device.type != "cuda":
            return self.submit(device, job, *args, **kwargs)
        done: Future[R] = Future()
        try:
            done.set_result(self._on_stream(device, partial(job, *args, **kwargs))())
        except BaseException as error:
            done.set_exception(error)
        return done

    def _on_stream(self, device: torch.device, job: Callable[[], R]) -> Callable[[], R]:
        """The job, on our stream of the device, behind what the caller's stream has so far."""
        if device.type != "cuda":
            return job
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device, HIGHEST)
        stream = self._streams[device]
        ready = torch.cuda.current_stream(device).record_event()

        def on_stream() -> R:
            with torch.cuda.device(device), torch.cuda.stream(stream):
                stream.wait_event(ready)
                return job()

        return on_stream

    def drain(self) -> None:
        """Return when all that was queued is done. Not to be called by a job."""
        if not self._closed:
            self._thread.submit(lambda: None).result()

    def join_streams(self) -> None:
        """Let the caller's stream wait for all that finished jobs have queued."""
        for device, stream in self._streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        self._closed = True
        self._thread.shutdown(wait=True)
