"""The lab: a network, the processes in it, and their end."""

import atexit
import itertools
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any, Literal

from thinwire.errors import LabError
from thinwire.lab import processes
from thinwire.lab.gpu import CardShare
from thinwire.lab.launch import launches
from thinwire.lab.links import LinkShape, bits_per_second, seconds
from thinwire.lab.namespaces import PREFIX, LabNetwork, LinkCount, Node
from thinwire.lab.probe import RateCheck, check_rate

FIRST_PORT = 29500  # free, since the namespaces are new; each start takes the next
Check = Literal["refuse", "warn", "skip"]
_serials = itertools.count()


class Lab:
    """A small cluster on this machine, for the length of a `with` block.

    `rate` shapes every link in both directions (None: unshaped), `burst` is the token bucket's
    in bytes. `delay` (one way, as "5ms") and `loss` (percent) need a kernel with netem. `check`
    says what happens if the rate turns out more than 10 % off. With `loopback` there are no
    namespaces and no links: all nodes are this machine. With `gpu` every rank has a card, rank i
    the card i modulo their number, also where there is but one; NCCL goes over the links.

    However the block is left, by an error or any signal, SIGKILL too, what it made is gone after.
    """

    def __init__(
        self,
        nodes: int = 2,
        rate: str | None = "1gbit",
        *,
        burst: int | None = None,
        delay: str | None = None,
        loss: float = 0.0,
        loopback: bool = False,
        check: Check = "refuse",
        gpu: bool = False,
    ) -> None:
        self.check, self.gpu = check, gpu
        self._share: CardShare | None = None
        self._watcher: processes.Watcher | None = None
        self.rate_check: RateCheck | None = None
        self._processes: list[processes.Process] = []
        self._ports = itertools.count(FIRST_PORT)
        self._at_start: list[LinkCount] = []
        self._restore: dict[int, Any] = {}
        if loopback:
            self.shape, self.network = LinkShape(), None
            self.nodes = [Node(i, "127.0.0.1", _loopback_interface()) for i in range(nodes)]
            self.name = f"{PREFIX}-{os.getpid()}-loopback{next(_serials)}"
        else:
            bits = None if rate is None else bits_per_second(rate)
            self.shape = LinkShape(bits, burst, seconds(delay) if delay else 0.0, loss)
            self.network = LabNetwork(nodes, self.shape)
            self.nodes, self.name = self.network.nodes, self.network.name

    def __enter__(self) -> "Lab":
        self._exit_on_signals()
        atexit.register(self.close)
        try:
            self._share = CardShare(self.name) if self.gpu else None
            folder = None if self._share is None else self._share.folder
            self._watcher = processes.Watcher(self.name, folder)
            if self._share is not None:
                self._share.prepare(len(self.nodes))
            if self.network is not None:
                self.network.build()
                self._check_rate()
                self._at_start = self.network.count_links()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self,
        command: Sequence[str],
        workers_per_node: int = 1,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **streams: processes.Stream,
    ) -> int:
        """Run a command on all nodes; zero, or the status of the first process that failed."""
        try:
            started = self.start(command, workers_per_node, env=env, **streams)
            return processes.wait_all(started, timeout_s)
        finally:
            self.end_processes()

    def start(
        self,
        command: Sequence[str],
        workers_per_node: int = 1,
        *,
        env: Mapping[str, str] | None = None,
        **streams: processes.Stream,
    ) -> list[processes.Process]:
        """Start a command on all nodes, in rank order, and leave it running."""
        port = next(self._ports) if self.network is not None else free_port()
        cards, common = None, dict(env or {})
        if self._share is not None:
            cards = self._share.cards
            common = self._share.prepare(len(self.nodes) * workers_per_node) | common
        started = []
        for launch in launches(command, self.nodes, workers_per_node, port, cards):
            enter = None if self.network is None else self.network.entrance(launch.node)
            variables = {**launch.env, **common}
            process = processes.start(launch.argv, variables, self.name, enter, **streams)
            self._processes.append(process)
            started.append(process)
        return started

    def counters(self) -> list[LinkCount]:
        """What crossed each node's link since the block was entered; none on the loopback."""
        now = self.network.count_links() if self.network is not None else []
        return [late - early for late, early in zip(now, self._at_start, strict=True)]

    def cut(self, node: int) -> None:
        """Pull the cable of a node; `mend` plugs it in again."""
        self._change(node, self.shape, up=False)

    def throttle(self, node: int, rate: str) -> None:
        """Another rate for the link of a node, in both directions, until `mend`."""
        self._change(node, replace(self.shape, rate=bits_per_second(rate)))

    def mend(self, node: int) -> None:
        """The link of a node as the lab was asked for it."""
        self._change(node, self.shape)

    def _change(self, node: int, shape: LinkShape, up: bool = True) -> None:
        if self.network is None:
            raise LabError("over the loopback there are no links to cut or to throttle")
        self.network.change_link(self.nodes[node], shape, up)

    def end_processes(self) -> None:
        """End all that was started and still runs."""
        processes.end(self._processes, self.name)
        if self._share is not None and any(process.returncode for process in self._processes):
            # A client that ended in a kernel may leave a server that refuses all others.
            self._share.end_mps()
        self._processes.clear()

    def close(self) -> None:
        """End the processes, remove the network; may be called again."""
        if self._watcher is not None:  # also of what was being started when a signal came
            self.end_processes()
        if self._share is not None:
            self._share.end_mps()
        if self.network is not None:
            self.network.remove()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        atexit.unregister(self.close)
        for number, handler in self._restore.items():
            signal.signal(number, handler)
        self._restore.clear()

    def _check_rate(self) -> None:
        """Both directions of the first two links; all are made by the same commands."""
        rate, network = self.shape.rate, self.network
        if rate is None or network is None or self.check == "skip" or len(self.nodes) < 2:
            return
        first, second = self.nodes[:2]
        checks = [check_rate(network, *ends, rate) for ends in ((first, second), (second, first))]
        self.rate_check = max(checks, key=lambda check: check.off)
        if self.rate_check.holds:
            return
        complaint = f"the links do not carry their rate: {self.rate_check}"
        if self.check == "refuse":
            raise LabError(
                f"{complaint}; if the machine is not just busy, ask for a rate that it reaches, or "
                "for none. check='warn', or --check warn, goes on"
            )
        warnings.warn(complaint, stacklevel=3)

    def _exit_on_signals(self) -> None:
        """Let SIGTERM and SIGHUP unwind the stack as SIGINT does, unless they have handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                self._restore[number] = signal.signal(number, _exit)


def unavailable() -> str | None:
    """Why there can be no namespaces with shaped links here; None if there can."""
    try:
        with Lab(nodes=1, rate="100mbit"):
            return None
    except LabError as error:
        return str(error)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _loopback_interface() -> str:
    return "lo" if sys.platform == "linux" else "lo0"


def free_port() -> int:
    """Below those that the kernel hands out, so that nobody gets it before the first rank does."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
