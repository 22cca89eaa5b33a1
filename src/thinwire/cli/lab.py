"""`thinwire lab`: a command, on a cluster made for it."""

import sys
import warnings
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Exit, Option

from thinwire.cli.console import activity, show_table
from thinwire.cli.options import Check, JsonPath, Nodes
from thinwire.cli.parse import check_choice, link_rate
from thinwire.errors import LabError
from thinwire.lab.lab import Lab
from thinwire.lab.namespaces import refuse_without_means
from thinwire.results.file import ResultFile

LOOPBACK = "add --loopback to run without namespaces, over unshaped loopback"


def lab(
    command: Annotated[
        list[str],
        Argument(help="torchrun, or any command, and its arguments; -- may be before it."),
    ],
    workers: Annotated[int, Option(min=1, help="Processes on all nodes together.")] = 4,
    nodes: Nodes = None,
    rate: Annotated[str, Option(help="Rate of each link, both ways; none: unshaped.")] = "1gbit",
    burst: Annotated[int | None, Option(help="Bytes of the token bucket.")] = None,
    delay: Annotated[
        str | None, Option(help="Delay of each link, one way, as 5ms; needs netem.")
    ] = None,
    loss: Annotated[float, Option(help="Percent of packets lost; needs netem.")] = 0.0,
    loopback: Annotated[
        bool, Option("--loopback", help="No namespaces: unshaped loopback.")
    ] = False,
    gpu: Annotated[
        bool, Option("--gpu", help="Every rank has a card, also where they share one; NCCL.")
    ] = False,
    check: Check = "refuse",
    json_path: JsonPath = None,
) -> None:
    """Run a command on a small cluster of network namespaces with shaped links.

    thinwire lab --workers 8 --nodes 4 --rate 1gbit -- torchrun train.py

    torchrun is told its nodes; other commands run once for each worker with RANK, WORLD_SIZE,
    MASTER_ADDR and the like. The counters are printed to stderr at the end.
    """
    nodes = nodes or workers
    if workers % nodes:
        raise LabError(f"{workers} workers cannot be shared out to {nodes} nodes evenly")
    if not loopback:
        _offer_loopback()
    cluster = Lab(
        nodes,
        link_rate(rate),
        burst=burst,
        delay=delay,
        loss=loss,
        loopback=loopback,
        check=check_choice(check),
        gpu=gpu,
    )
    warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
    with ExitStack() as stack:
        with activity(Console(stderr=True), "making the links and checking their rate"):
            stack.enter_context(cluster)
        if cluster.rate_check is not None:
            _say(f"{nodes} nodes: {cluster.rate_check}")
        try:
            status = cluster.run(command, workers // nodes)
        finally:
            _report(cluster, json_path)
    raise Exit(status)


def _offer_loopback() -> None:
    try:
        refuse_without_means()
    except LabError as error:
        raise LabError(f"{error}; {LOOPBACK}") from None


def _report(cluster: Lab, json_path: Path | None) -> None:
    """What crossed the links; on stderr, since stdout is the command's."""
    counts = cluster.counters()
    if counts:
        lines = [
            (
                str(node.index),
                node.address,
                f"{count.bytes_sent / 1e6:.2f}",
                f"{count.bytes_received / 1e6:.2f}",
            )
            for node, count in zip(cluster.nodes, counts, strict=True)
        ]
        console = Console(stderr=True, highlight=False)
        show_table(console, None, ("node", "address", "MB sent", "MB received"), lines)
    if json_path is not None:
        ResultFile(json_path).add(asdict(count) for count in counts)


def _say(text: str) -> None:
    sys.stderr.write(f"thinwire: {text}\n")
