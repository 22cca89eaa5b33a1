"""`thinwire report`: result files as one page."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from thinwire.cli.options import JsonPath, PngFolder
from thinwire.report.blocks import renewed
from thinwire.report.charts.png import refuse_without_matplotlib, save, save_sheet
from thinwire.report.kinds import by_kind
from thinwire.results.file import ResultFile, write_whole
from thinwire.results.rows import read


def report(
    results: Annotated[
        list[Path], Argument(help="Result files (the --json of other commands), or folders.")
    ],
    out: Annotated[Path, Option(help="Where to write the page.")] = Path("report.html"),
    png: PngFolder = None,
    sheet: Annotated[Path | None, Option(help="All figures in one PNG.")] = None,
    pages: Annotated[
        list[Path] | None, Option("--page", help="A Markdown page whose tables are made anew.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Draw any set of result files as one HTML page that needs nothing else."""
    refuse_without_matplotlib()
    from thinwire.report.figures import draw
    from thinwire.report.page import report_page

    content = read(results)
    kinds = by_kind(content.rows)
    drawn = draw(kinds)
    plots = [plot for members in drawn.values() for plot in members]
    write_whole(out, report_page(kinds, drawn, content.origins))
    files = len(content.origins)
    echo(f"Page: {out} ({len(content.rows)} rows of {files} files, {len(plots)} figures)")
    if png is not None:
        save(plots, png)
        echo(f"Figures: {png}")
    if sheet is not None:
        save_sheet(plots, sheet)
        echo(f"Sheet: {sheet}")
    for page in pages or []:
        write_whole(page, renewed(page.read_text(encoding="utf-8"), page.parent))
        echo(f"Tables: {page}")
    if json_path is not None:
        ResultFile(json_path, content.origins).add(content.rows)
        echo(f"Rows: {json_path}")
