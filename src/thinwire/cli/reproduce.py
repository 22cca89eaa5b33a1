"""`thinwire reproduce`: a paper's experiments again, and what of it holds."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option, echo

from thinwire.cli.console import carry_out, plain_console, show_table
from thinwire.cli.options import JsonPath
from thinwire.cli.parse import split
from thinwire.errors import ThinwireError
from thinwire.report.blocks import renewed
from thinwire.report.charts.png import refuse_without_matplotlib, save_sheet
from thinwire.report.kinds import by_kind
from thinwire.results.file import ResultFile, Row, replace_rows, write_whole
from thinwire.results.rows import read


def reproduce(
    name: Annotated[str, Argument(help="gtopk, ok-topk, dragonn, deepreduce or s2.")],
    only: Annotated[
        str,
        Option(help="Such as fig5,table1; all if not set. What --json has of others stays."),
    ] = "",
    quick: Annotated[
        bool, Option("--quick", help="Everything tiny: to see that it runs; verdicts mean nothing.")
    ] = False,
    judge: Annotated[
        bool, Option("--judge", help="Measure nothing: judge the numbers in --json anew.")
    ] = False,
    png: Annotated[Path | None, Option(help="All figures in one PNG.")] = None,
    pages: Annotated[
        list[Path] | None, Option("--page", help="A Markdown page whose tables are made anew.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Measure a paper's figures and tables at a scale that fits this machine, and judge them."""
    from thinwire.reproduce.experiment import judged, others, run
    from thinwire.reproduce.measures import Measures
    from thinwire.reproduce.papers import PAPERS

    if name not in PAPERS:
        raise ThinwireError(f"unknown paper {name!r}; there are {', '.join(PAPERS)}")
    if judge and (json_path is None or not json_path.exists()):
        raise ThinwireError("--judge needs the file that has the numbers: --json FILE")
    if png is not None:
        refuse_without_matplotlib()
    paper, items = PAPERS[name], split(only)
    experiments = paper.named(items)
    known = _rows(json_path)
    if judge and json_path is not None:
        replace_rows(json_path, known := judged(paper, known))
        _show(plain_console(), name, known)
    else:
        results = ResultFile(json_path, rows=others(paper, items, known) if items else ())
        carry_out(
            len(experiments),
            lambda watcher: run(paper, items, results, Measures(watcher, quick)),
            lambda console: _show(console, name, results.rows),
        )
        known = results.rows
    if png is not None:
        from thinwire.report.figures import draw

        drawn = draw(by_kind(known))
        save_sheet((plot for plots in drawn.values() for plot in plots), png)
        echo(f"Figures: {png}")
    for page in pages or []:
        write_whole(page, renewed(page.read_text(encoding="utf-8"), page.parent))
        echo(f"Tables: {page}")


def _rows(path: Path | None) -> list[Row]:
    """What the file has, if there is one."""
    if path is None or not path.exists():
        return []
    return [{k: v for k, v in row.items() if k != "file"} for row in read([path]).rows]


def _show(console: Console, name: str, rows: list[Row]) -> None:
    found = [row for row in rows if "verdict" in row and row["says"]]
    lines = [(f"{row['item']}: {row['says']}", row["verdict"]) for row in found]
    show_table(console, f"What holds of {name}", ("the paper says", "verdict"), lines)
