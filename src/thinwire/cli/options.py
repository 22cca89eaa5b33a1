"""What several commands ask for alike."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thinwire.cli.parse import time_span
from thinwire.errors import ThinwireError


def read_time(given: Any) -> float:
    """A time, as typer hands it over: as text, or a default as it is. Errors name the option."""
    try:
        return time_span(str(given))
    except ThinwireError as error:
        raise typer.BadParameter(str(error)) from None


Workers = Annotated[str, typer.Option(help="Numbers of processes: 4,8.")]
Nodes = Annotated[
    int | None, typer.Option(min=1, help="Nodes that share the processes; one for each if not set.")
]
Rates = Annotated[
    str, typer.Option(help="Rates of the links: 1gbit,100mbit; none is unshaped loopback.")
]
Densities = Annotated[str, typer.Option(help="Shares of the elements to select: 0.001,0.01.")]
Check = Annotated[
    str, typer.Option(help="Where a link is off its rate: refuse, warn, or skip the check.")
]
Seconds = Annotated[float, typer.Option(min=0, help="Seconds to spend on each measurement.")]
JsonPath = Annotated[Path | None, typer.Option("--json", help="Write the results here as JSON.")]
PngPath = Annotated[Path | None, typer.Option("--png", help="Draw the results here as PNG.")]
PngFolder = Annotated[Path | None, typer.Option("--png", help="A folder for the figures as PNG.")]
