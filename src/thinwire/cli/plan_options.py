"""What the three commands ask for alike, and what they make of it."""

from typing import Annotated

import torch
import typer

from thinwire.cli.options import read_time
from thinwire.cli.parse import split
from thinwire.cookbook import at_density
from thinwire.cost.network import Link, Network
from thinwire.errors import ThinwireError
from thinwire.pipeline import Pipeline

CANDIDATES = "dense,bf16,topk,topk-dsa,gtopk,ok-topk,union,omnireduce"
PLAIN_WIDTH = 200  # of a pipe: written recipes are long
INSIDE_GBPS, INSIDE_LATENCY = 200.0, 5e-6  # of a node: PCIe, or a modest NVLink
LATENCY = 50e-6  # seconds: between two machines of a data centre, through the kernel

ModelName = Annotated[
    str, typer.Argument(help="resnet50 or another known one; or your own, module:function.")
]
Recipes = Annotated[str, typer.Option(help="Names or written recipes, separated by commas.")]
Density = Annotated[float, typer.Option(help="Share of the elements that sparse recipes select.")]
Gbps = Annotated[float | None, typer.Option(help="Gbit/s of a rank's link, each way.")]
Latency = Annotated[
    float,
    typer.Option(
        parser=read_time, metavar="TIME", show_default="50us", help="From rank to rank, as 50us."
    ),
]
Compute = Annotated[
    float | None,
    typer.Option(
        parser=read_time,
        metavar="TIME",
        help="Forward and backward of a step, as 100ms; if not set declared for known models, "
        "and 0 for others.",
    ),
]
NodeSize = Annotated[
    int, typer.Option(min=1, help="Ranks that share a node: they exchange by its leader.")
]
InsideGbps = Annotated[float, typer.Option(help="Gbit/s inside a node.")]
InsideLatency = Annotated[
    float,
    typer.Option(
        parser=read_time, metavar="TIME", show_default="5us", help="From rank to rank in a node."
    ),
]


def pipelines(names: str, density: float) -> dict[str, Pipeline]:
    """The recipes by name; dense, which all are compared with, is always one."""
    wanted = dict.fromkeys(("dense", *split(names)))
    return {name: at_density(name, density) for name in wanted}


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
        raise ThinwireError(f"device={name!r} must be auto, cpu, cuda or none")
    if name == "cuda" and not torch.cuda.is_available():
        raise ThinwireError("device='cuda': there is none here; take cpu or auto")
    return torch.device(name)
