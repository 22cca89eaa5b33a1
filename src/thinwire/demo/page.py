"""The demo's page: a report's page and figures, with the demo's own words and tables."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import count

from thinwire.demo import table
from thinwire.demo.results import summarise
from thinwire.report.charts.drawing import Plot
from thinwire.report.charts.palette import Look, looks
from thinwire.report.figures.train import loss_figure
from thinwire.report.page import document, figures, section
from thinwire.report.panels import Panel, panels
from thinwire.results.file import Row


def page(
    rows: Sequence[Row],
    title: str,
    introduction: Sequence[str] = (),
    model_titles: Mapping[str, str] | None = None,
    baseline: str = "dense",
    footer: str = "",
) -> str:
    """The whole page: for each model its curves, against steps and against bytes, and its table."""
    look = looks(row["recipe"] for row in rows)
    numbers = count(1)
    sections = "".join(
        section(
            (model_titles or {}).get(model, model),
            figures(plot.numbered(next(numbers)) for plot in _curves(panel, look))
            + _table(panel.rows, look, baseline),
        )
        for panel in panels(rows, ("model",))
        for model in [panel.settings["model"]]
    )
    return document(title, introduction, sections, [footer])


def _curves(panel: Panel, look: Mapping[str, Look]) -> Iterator[Plot]:
    # Not against time: these workers share one machine, and time shows its cores.
    yield from loss_figure(panel, look, "step")
    yield from loss_figure(panel, look, "bytes_sent_per_rank")


def _table(rows: Sequence[Row], look: Mapping[str, Look], baseline: str) -> str:
    (summaries,) = summarise(rows).values()
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headings(summaries))
    body = "".join(
        f'<tr data-recipe="{escape(name)}"><td>{look[name].swatch()}{escape(name)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for name, *cells in table.rows(summaries, baseline)
    )
    return (
        f'<div class="scroll"><table class="summary"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )
