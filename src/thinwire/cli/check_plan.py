"""`thinwire check-plan`: how far predicted steps are from measured ones."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from thinwire.cli.console import plain_console, show_table
from thinwire.cli.options import JsonPath
from thinwire.cli.plan_options import PLAIN_WIDTH
from thinwire.cost.calibration import Calibration
from thinwire.errors import ThinwireError
from thinwire.format import duration, rate
from thinwire.plan.check import compare, median_error
from thinwire.report.panels import panels
from thinwire.results.file import ResultFile, Row
from thinwire.results.rows import read

HEADINGS = ("recipe", "measured", "predicted", "off by")


def check_plan(
    measured: Annotated[
        list[Path], Argument(help="Result files of bench train --device.", exists=True)
    ],
    *,
    calibration: Annotated[
        list[Path],
        Option(help="What doctor --json measured over such links; again for other rates."),
    ] = [],  # noqa: B006 - typer's way to say none
    json_path: JsonPath = None,
) -> None:
    """Predict the steps that were measured, and say how far off the predictions are.

    Without --calibration the network is what the run's own dense steps show.
    """
    known = [_calibration(path) for path in calibration]
    compared = compare(read(measured).rows, known)
    if not compared:
        raise ThinwireError("nothing to compare: no row has both its compute and a cost model")
    error = median_error(compared)
    ResultFile(json_path).add([*compared, {"median_error": error, "rows": len(compared)}])
    console = plain_console(PLAIN_WIDTH)
    for panel in panels(compared, ("model", "workers", "rate")):
        model, workers, megabits = panel.settings.values()
        where = "unshaped links" if megabits is None else rate(megabits)
        title = f"{model}, {workers} workers, {where}"
        show_table(console, title, HEADINGS, map(_cells, panel.rows))
    console.print(f"Median error of {len(compared)} predictions: {error:.1%}")


def _calibration(path: Path) -> Calibration:
    rows = [row for row in read([path]).rows if row.keys() >= {"network", "costs"}]
    if not rows:
        raise ThinwireError(f"{path} has no calibration: thinwire doctor --json writes one")
    try:
        return Calibration.from_dict(rows[-1])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ThinwireError(f"{path}: its calibration is damaged: {error!r}") from error


def _cells(row: Row) -> tuple[str, ...]:
    density = row["density"]
    name = row["recipe"] + ("" if density is None else f"({density:g})")
    seconds = duration(row["measured_seconds"]), duration(row["predicted_seconds"])
    return (name, *seconds, f"{row['error']:+.1%}")
