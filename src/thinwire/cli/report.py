"""`thinwire report`: result files as one page."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from thinwire.cli.console import activity, plain_console
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
    console = plain_console()

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    with activity(console, "drawing") as tell:
        tell(f"{len(content.rows)} rows")
        drawn = draw(kinds)
        plots = [plot for members in drawn.values() for plot in members]
        tell(f"a page of {len(plots)} figures")
        write_whole(out, report_page(kinds, drawn, content.origins))
        files = len(content.origins)
        say(f"Page: {out} ({len(content.rows)} rows of {files} files, {len(plots)} figures)")
        if png is not None:
            tell("PNG files")
            save(plots, png)
            say(f"Figures: {png}")
        if sheet is not None:
            tell("the sheet")
            save_sheet(plots, sheet)
            say(f"Sheet: {sheet}")
    for page in pages or []:
        write_whole(page, renewed(page.read_text(encoding="utf-8"), page.parent))
        say(f"Tables: {page}")
    if json_path is not None:
        ResultFile(json_path, content.origins).add(content.rows)
        say(f"Rows: {json_path}")
