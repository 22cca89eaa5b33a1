"""The figures of each kind of row: `draw` makes all that the rows can fill."""

from collections.abc import Iterable, Mapping

from thinwire.report.charts.drawing import Plot
from thinwire.report.charts.palette import looks
from thinwire.report.figures.codecs import codec_figures
from thinwire.report.figures.kernels import kernel_figures
from thinwire.report.figures.scaling import simulate_figures, sync_figures
from thinwire.report.figures.train import train_figures
from thinwire.report.kinds import Kind
from thinwire.results.file import Row

_FIGURES = {
    "sync": sync_figures,
    "train": train_figures,
    "simulate": simulate_figures,
    "kernels": kernel_figures,
    "codecs": codec_figures,
}


def draw(found: Mapping[Kind, list[Row]]) -> dict[Kind, list[Plot]]:
    """By kind; a series has the same look in all figures, and each figure a name of its own."""
    drawn: dict[Kind, list[Plot]] = {}
    count = 0
    for kind, rows in found.items():
        if kind.name not in _FIGURES:
            continue
        look = looks(_series(found, kind.series))
        drawn[kind] = []
        for plot in _FIGURES[kind.name](rows, look):
            count += 1
            drawn[kind].append(plot.numbered(count))
    return drawn


def _series(found: Mapping[Kind, list[Row]], field: str) -> Iterable[str]:
    return (str(row[field]) for rows in found.values() for row in rows if field in row)
