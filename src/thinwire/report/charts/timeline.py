"""What several workers were busy with over time, a band for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.patches import Patch

from thinwire.report.charts import drawing
from thinwire.report.charts.drawing import LETTER, Axis, Plot
from thinwire.report.charts.palette import LIGHT
from thinwire.report.charts.svg import mark_series

BAND_ROW = 0.3  # inches


@dataclass(frozen=True)
class Band:
    """A worker, and its spans as (what, start, end)."""

    name: str
    spans: Sequence[tuple[str, float, float]]


def timeline_chart(
    title: str, name: str, x: Axis, colours: Mapping[str, str], bands: Sequence[Band]
) -> Iterator[Plot]:
    """One chart, or none where nothing was done."""
    bands = [band for band in bands if band.spans]
    if not bands:
        return
    used = {what for band in bands for what, _, _ in band.spans}
    with matplotlib.rc_context(drawing.STYLE):
        shown = {what: colour for what, colour in colours.items() if what in used}
        key = {what: Patch(color=LIGHT[colour]) for what, colour in shown.items()}
        left = 0.2 + LETTER * max(len(band.name) for band in bands)
        height = BAND_ROW * len(bands) + 0.1
        figure, axes = drawing.frame(
            title, x.label, height, left, key, series=dict.fromkeys(key, "")
        )
        for row, band in enumerate(bands):
            for what in shown:
                pieces = [(start, end - start) for which, start, end in band.spans if which == what]
                if pieces:
                    drawn = axes.broken_barh(
                        pieces, (row - 0.38, 0.76), color=LIGHT[shown[what]], linewidth=0
                    )
                    mark_series(drawn, "bar", what)
        axes.set_xlim(0, max(end for band in bands for _, _, end in band.spans))
        axes.set_ylim(len(bands) - 0.45, -0.6)
        axes.set_yticks(range(len(bands)), [band.name for band in bands], color=LIGHT["ink"])
        axes.xaxis.set_major_locator(drawing.round_ticks(6))
        axes.xaxis.set_major_formatter(x.formatter)
        axes.grid(axis="x")
    yield Plot(title, name, figure)
