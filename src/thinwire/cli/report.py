"""`thinwire report`: result files as one page.

Hooked into the command line by `app.command("report")(report)`.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from thinwire.report.charts.png import refuse_without_matplotlib, save
from thinwire.report.kinds import by_kind
from thinwire.results.file import write_whole
from thinwire.results.rows import SCHEMA, Results, read


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Result files (the --json of other commands), or folders.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    png: Annotated[Path | None, typer.Option(help="A folder for the figures as PNG.")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write all rows here as one result file.")
    ] = None,
) -> None:
    """Draw any set of result files as one HTML page that needs nothing else."""
    refuse_without_matplotlib()
    from thinwire.report.figures import draw
    from thinwire.report.page import report_page

    found = read(results)
    kinds = by_kind(found.rows)
    drawn = draw(kinds)
    plots = [plot for members in drawn.values() for plot in members]
    write_whole(out, report_page(kinds, drawn, found.machines))
    files = len(found.machines)
    typer.echo(f"Page: {out} ({len(found.rows)} rows of {files} files, {len(plots)} figures)")
    if png is not None:
        save(plots, png)
        typer.echo(f"Figures: {png}")
    if json_path is not None:
        write_whole(json_path, _together(found))
        typer.echo(f"Rows: {json_path}")


def _together(results: Results) -> str:
    """One result file of all; its machine has an entry for each file's."""
    content = {"schema": SCHEMA, "machine": results.machines, "rows": results.rows}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
