"""Options that `plan`, `simulate` and `doctor` share."""

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from thinwire.auto.quality import NEAR
from thinwire.cli.options import time_option
from thinwire.cli.parse import split
from thinwire.cost.network import Link, Network
from thinwire.errors import ThinwireError
from thinwire.pipeline import Pipeline
from thinwire.plan.measure import candidates

PLAIN_WIDTH = 200  # of a pipe: written recipes are long

ModelName = Annotated[
    str, Argument(help="resnet50 or another known one; or your own, module:function.")
]
Compute = Annotated[
    float | None,
    time_option(
        "Forward and backward of a step, as 100ms; if not set declared for known models, "
        "and 0 for others."
    ),
]
GBPS_HELP = "Gbit/s of a rank's link, each way."


@dataclass(frozen=True)
class ClusterOptions:
    """The recipes to compare, and the cluster to compare them on."""

    recipes: Annotated[str, Option(help="Names or written recipes, separated by commas.")] = (
        ",".join(("dense", *NEAR, "topk", "topk-dsa", "gtopk", "ok-topk", "union", "omnireduce"))
    )
    density: Annotated[float, Option(help="Share of the elements that sparse recipes select.")] = (
        0.01
    )
    # Between two machines of a data centre, through the kernel.
    latency: Annotated[float, time_option("From rank to rank, as 50us.", show_default="50us")] = (
        50e-6
    )
    node_size: Annotated[
        int, Option(min=1, help="Ranks that share a node: they exchange by its leader.")
    ] = 1
    # PCIe, or a modest NVLink.
    inside_gbps: Annotated[float, Option(help="Gbit/s inside a node.")] = 200.0
    inside_latency: Annotated[
        float, time_option("From rank to rank in a node.", show_default="5us")
    ] = 5e-6

    def pipelines(self) -> dict[str, Pipeline]:
        """The recipes by name."""
        return candidates(split(self.recipes), self.density)

    def network(self, link: Link, backend: str = "gloo") -> Network:
        """Nodes with such a link between them."""
        if self.node_size == 1:
            return Network(link, backend=backend)
        inside = Link.of(self.inside_gbps, self.inside_latency)
        return Network(link, inside=inside, node_size=self.node_size, backend=backend)

    def check_workers(self, workers: int) -> None:
        """Refuse ranks that do not fill the nodes."""
        if workers % self.node_size:
            raise ThinwireError(f"{workers} workers do not fill nodes of {self.node_size}")
