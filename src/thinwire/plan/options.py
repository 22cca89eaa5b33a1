"""What the three commands ask for alike, and how they show it."""

from typing import Annotated

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from thinwire.bench.command import split
from thinwire.bench.sync_case import build, takes_density
from thinwire.errors import ThinwireError
from thinwire.pipeline import Pipeline
from thinwire.policy.network import Link, Network

CANDIDATES = "dense,bf16,topk,topk-dsa,gtopk,ok-topk,union,omnireduce"
PLAIN_WIDTH = 200  # a pipe has no width of its own; written recipes are long
INSIDE_GBPS, INSIDE_LATENCY = 200.0, 5e-6  # of a node: PCIe, or a modest NVLink
LATENCY = 50e-6  # seconds: between two machines of a data centre, through the kernel

Recipes = Annotated[str, typer.Option(help="Names or written recipes, separated by commas.")]
Density = Annotated[float, typer.Option(help="Of the recipes that have one.")]
Gbps = Annotated[float | None, typer.Option(help="Gbit/s of a rank's link, each way.")]
Latency = Annotated[float, typer.Option(help="Seconds from rank to rank.")]
Compute = Annotated[
    float | None, typer.Option(help="Seconds of forward and backward; known models have one.")
]
NodeSize = Annotated[int, typer.Option(min=1, help="Ranks of a node: exchange by its leader.")]
InsideGbps = Annotated[float, typer.Option(help="Gbit/s inside a node.")]
InsideLatency = Annotated[float, typer.Option(help="Seconds inside a node.")]


def pipelines(names: str, density: float) -> dict[str, Pipeline]:
    """The recipes by name; dense, which all are compared with, is always one."""
    wanted = dict.fromkeys(("dense", *split(names)))
    return {name: build(name, density if takes_density(name) else None) for name in wanted}


def given_network(link: Link, node_size: int, inside_gbps: float, inside_latency: float) -> Network:
    """A network in the user's words."""
    if node_size == 1:
        return Network(link)
    return Network(link, inside=Link.of(inside_gbps, inside_latency), node_size=node_size)


def check_workers(workers: int, node_size: int) -> None:
    """Refuse ranks that do not fill the nodes."""
    if workers % node_size:
        raise ThinwireError(f"{workers} workers do not fill nodes of {node_size}")


def chosen_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ThinwireError(f"device={name!r} must be auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ThinwireError("device='cuda': there is none here; take cpu or auto")
    return torch.device(name)


def console() -> Console:
    """The terminal, or plain text in a pipe."""
    shown = Console(highlight=False)
    return shown if shown.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def table(title: str, *headings: str) -> Table:
    """First column left, numbers right."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return made
