"""`thinwire report`: result files as one page.

Hooked into the command line by `app.command("report")(report)`.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from thinwire.errors import ThinwireError
from thinwire.report.kinds import by_kind
from thinwire.report.rows import SCHEMA, Results, read
from thinwire.results import write_whole


def report(
    results: Annotated[list[Path], typer.Argument(help="Result files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    png: Annotated[Path | None, typer.Option(help="A folder for the figures as PNG.")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="All rows together, each with its file.")
    ] = None,
) -> None:
    """Draw any set of result files as one HTML page that needs nothing else."""
    if find_spec("matplotlib") is None:
        raise ThinwireError("figures need matplotlib: pip install 'thinwire[plot]'")
    from thinwire.report.figures import draw
    from thinwire.report.page import report_page
    from thinwire.report.svg import png as as_png

    found = read(results)
    kinds = by_kind(found.rows)
    drawn = draw(kinds)
    plots = [plot for members in drawn.values() for plot in members]
    write_whole(out, report_page(kinds, drawn, found.machines))
    files = len(found.machines)
    typer.echo(f"Page: {out} ({len(found.rows)} rows of {files} files, {len(plots)} figures)")
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
        for plot in plots:
            (png / f"{plot.name}.png").write_bytes(as_png(plot.figure))
        typer.echo(f"Figures: {png}")
    if json_path is not None:
        write_whole(json_path, _together(found))
        typer.echo(f"Rows: {json_path}")


def _together(results: Results) -> str:
    """One result file of all; its machine has an entry for each file's."""
    content = {"schema": SCHEMA, "machine": results.machines, "rows": results.rows}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
