"""Codecs: bits per item beside the entropy, and items per second."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.format import short
from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.palette import Look
from thinwire.report.panels import Panel, panels
from thinwire.results.file import Row

SETTINGS = ("part", "distribution", "n", "density")
SHOWN_BITS = 40.0  # longer bars are cut: a bitmap may take hundreds
RATES = {"encode": "hue-0", "decode": "hue-1"}


def codec_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    for panel in panels(rows, SETTINGS):
        yield from _bits(panel)
        for work, colour in RATES.items():
            yield from _rates(panel, work, colour)


def codec_bits(rows: Sequence[Row]) -> Iterator[Plot]:
    """Only the bits."""
    for panel in panels(rows, SETTINGS):
        yield from _bits(panel)


def _bits(panel: Panel) -> Iterator[Plot]:
    """With the relative error that the bits leave, and the entropy across all bars."""
    measured = [row for row in panel.rows if row["bits_per_item"] is not None]
    bars = []
    for row in sorted(measured, key=lambda row: row["bits_per_item"]):
        bits, error = row["bits_per_item"], row.get("relative_error")
        text = f"{bits:.4g}, error {error:.2g}" if error else f"{bits:.4g}"
        bars.append(Bar(row["codec"], row["codec"], {"bits": bits}, text))
    bounds = [row["entropy_bits"] for row in panel.rows if row["entropy_bits"] is not None]
    yield from bar_chart(
        panel.title(),
        "codec-bits",
        Axis(f"bits per {panel.settings['part']}"),
        {"bits": "hue-5"},
        bars,
        limit=SHOWN_BITS,
        bound=bounds[0] if bounds else None,
    )


def _rates(panel: Panel, work: str, colour: str) -> Iterator[Plot]:
    bars = [
        Bar(row["codec"], row["codec"], {work: speed}, short(speed))
        for row in panel.rows
        if (speed := row[f"{work}_items_per_s"]) is not None
    ]
    yield from bar_chart(
        panel.title(f"{work}d per second".capitalize()),
        f"codec-{work}",
        Axis("items per second"),
        {work: colour},
        bars,
    )
