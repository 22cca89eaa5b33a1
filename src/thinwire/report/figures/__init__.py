"""The figures of each kind of row: `draw` makes all that the rows can fill."""

from collections.abc import Iterable, Mapping
from itertools import count

from thinwire.report.charts.drawing import Plot
from thinwire.report.charts.palette import looks
from thinwire.report.figures.codecs import codec_figures
from thinwire.report.figures.converge import converge_figures
from thinwire.report.figures.kernels import kernel_figures
from thinwire.report.figures.papers import paper_figures
from thinwire.report.figures.scaling import simulate_figures, sync_figures
from thinwire.report.figures.steps import steps_figures, timeline_figures
from thinwire.report.figures.train import train_figures
from thinwire.report.kinds import Kind
from thinwire.results.file import Row

_FIGURES = {
    "sync": sync_figures,
    "train": train_figures,
    "converge": converge_figures,
    "steps": steps_figures,
    "timeline": timeline_figures,
    "simulate": simulate_figures,
    "kernels": kernel_figures,
    "codecs": codec_figures,
    "paper": paper_figures,
}


def draw(rows: Mapping[Kind, list[Row]]) -> dict[Kind, list[Plot]]:
    """By kind; a series has the same look in all figures, and each figure a name of its own."""
    numbers = count(1)
    return {
        kind: [
            plot.numbered(next(numbers))
            for plot in _FIGURES[kind.name](members, looks(_names(rows, kind.series)))
        ]
        for kind, members in rows.items()
        if kind.name in _FIGURES
    }


def _names(rows: Mapping[Kind, list[Row]], series: str) -> Iterable[str]:
    return (str(row[series]) for members in rows.values() for row in members if series in row)
