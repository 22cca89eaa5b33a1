"""One HTML page that fetches nothing: style, script and figures are in it."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from thinwire.report.charts.drawing import Plot
from thinwire.report.charts.palette import DARK, LIGHT, variables
from thinwire.report.charts.svg import inline_svg
from thinwire.report.kinds import Kind
from thinwire.report.table import table
from thinwire.results.file import Row

TITLE = "thinwire: results"
HOW_TO_READ = (
    "Point at a line, a bar or its name to see it alone, also with Tab and the arrow keys; tap or "
    "Enter keeps it. Lines in grey have their colour then. A heading sorts its table, words in its "
    "box filter it; on paper all rows are there."
)
SAVE = "".join(
    f'<button type="button" data-save="{form}" title="Save this figure">{form.upper()}</button>'
    for form in ("svg", "png")
)


def report_page(
    rows: Mapping[Kind, list[Row]],
    plots: Mapping[Kind, list[Plot]],
    origins: Mapping[str, Mapping[str, Any]],
) -> str:
    """For each kind of row its figures and its table; at the end, where each file is from."""
    links = "".join(f'<a href="#{kind.name}">{escape(kind.title)}</a>' for kind in rows)
    sections = "".join(
        section(
            kind.title,
            f'<p class="faint">{escape(kind.note)}</p>\n'
            f"{figures(plots.get(kind, []))}\n{table(kind, members)}",
            kind.name,
        )
        for kind, members in rows.items()
    )
    return document(
        TITLE,
        [HOW_TO_READ if rows else "There are no rows in these files yet."],
        f"<nav>{links}</nav>\n{sections}" if len(rows) > 1 else sections,
        [f"{file}: {describe(origin)}" for file, origin in origins.items()],
    )


def document(title: str, introduction: Sequence[str], content: str, footer: Sequence[str]) -> str:
    """The whole page around its sections, which are HTML; the other words are plain text."""
    here = files("thinwire.report")
    style = (
        f":root {{ color-scheme: light dark; {variables(LIGHT)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}\n"
        + here.joinpath("page.css").read_text(encoding="utf-8")
    )
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{_paragraphs(introduction)}\n{content}\n"
        f"<footer>{_paragraphs(footer)}</footer>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def section(title: str, content: str, name: str = "") -> str:
    anchor = f' id="{escape(name)}"' if name else ""
    return f"<section{anchor}><h2>{escape(title)}</h2>\n{content}</section>\n"


def figures(plots: Iterable[Plot]) -> str:
    """Each with the buttons that save it."""
    shown = "\n".join(
        f'<figure id="{escape(plot.name)}">{inline_svg(plot.figure, plot.name, plot.title)}'
        f'<figcaption class="needs-script">{SAVE}</figcaption></figure>'
        for plot in plots
    )
    return f'<div class="figures">{shown}</div>'


def describe(machine: Mapping[str, Any]) -> str:
    """In one line."""
    known = {key: value for key, value in machine.items() if value is not None}
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in known.items()
    )


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)
