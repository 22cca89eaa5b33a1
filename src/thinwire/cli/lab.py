"""`thinwire lab`: a command, on a cluster made for it.

Hooked into the command line by `app.command("lab")(lab)`.
"""

import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from thinwire.lab.errors import LabError
from thinwire.lab.lab import Check, Lab
from thinwire.lab.namespaces import refuse_without_means
from thinwire.results.file import ResultFile

LOOPBACK = "add --loopback to run without namespaces, over unshaped loopback"


def lab(
    command: Annotated[
        list[str], typer.Argument(help="After --: torchrun, or any command, and its arguments.")
    ],
    workers: Annotated[int, typer.Option(min=1, help="Processes on all nodes together.")] = 4,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes that share the processes; one for each if not set."),
    ] = None,
    rate: Annotated[
        str, typer.Option(help="Rate of each link, both ways; none: unshaped.")
    ] = "1gbit",
    burst: Annotated[int | None, typer.Option(help="Bytes of the token bucket.")] = None,
    delay: Annotated[
        str | None, typer.Option(help="Delay of each link, one way, as 5ms; needs netem.")
    ] = None,
    loss: Annotated[float, typer.Option(help="Percent of packets lost; needs netem.")] = 0.0,
    loopback: Annotated[
        bool, typer.Option("--loopback", help="No namespaces: unshaped loopback, without root.")
    ] = False,
    check: Annotated[
        str, typer.Option(help="Where a link is off its rate: refuse, warn, or skip the check.")
    ] = "refuse",
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the counters here as JSON.")
    ] = None,
) -> None:
    """Run a command on a small cluster of network namespaces with shaped links.

    thinwire lab --workers 8 --nodes 4 --rate 1gbit -- torchrun train.py

    torchrun is told its nodes; other commands run once a worker with RANK, WORLD_SIZE,
    MASTER_ADDR and the like. The counters are printed to stderr at the end.
    """
    nodes = nodes or workers
    if workers % nodes:
        raise LabError(f"{workers} workers cannot be shared out to {nodes} nodes evenly")
    if not loopback:
        _offer_loopback()
    cluster = Lab(
        nodes,
        None if rate == "none" else rate,
        burst=burst,
        delay=delay,
        loss=loss,
        loopback=loopback,
        check=check_choice(check),
    )
    warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
    with cluster:
        if cluster.rate_check is not None:
            _say(f"{nodes} nodes: {cluster.rate_check}")
        try:
            status = cluster.run(command, workers // nodes)
        finally:
            _report(cluster, json_path)
    raise typer.Exit(status)


def _offer_loopback() -> None:
    try:
        refuse_without_means()
    except LabError as error:
        raise LabError(f"{error}; {LOOPBACK}") from None


def check_choice(text: str) -> Check:
    for choice in ("refuse", "warn", "skip"):
        if text == choice:
            return choice
    raise LabError(f"check={text!r} must be refuse, warn or skip")


def _report(cluster: Lab, json_path: Path | None) -> None:
    """What crossed the links; on stderr, since stdout is the command's."""
    counts = cluster.counters()
    if counts:
        table = Table("node", "address", "MB sent", "MB received", box=box.SIMPLE)
        for node, count in zip(cluster.nodes, counts, strict=True):
            sent, received = (f"{n / 1e6:.2f}" for n in (count.bytes_sent, count.bytes_received))
            table.add_row(str(node.index), node.address, sent, received)
        Console(stderr=True, highlight=False).print(table)
    if json_path is not None:
        ResultFile(json_path).add(asdict(count) for count in counts)


def _say(text: str) -> None:
    sys.stderr.write(f"thinwire: {text}\n")
