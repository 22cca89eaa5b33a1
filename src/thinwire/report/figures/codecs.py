"""Codecs: bits an item beside the entropy, and items a second."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.format import short
from thinwire.report.charts.bars import Bar, bar_chart
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.palette import Look
from thinwire.report.panels import Panel, panels
from thinwire.results.file import Row

RATES = {"encode": "hue-0", "decode": "hue-1"}


def codec_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    for panel in panels(rows, ("part", "distribution", "n", "density")):
        yield from _bits(panel)
        for way, colour in RATES.items():
            yield from _rates(panel, way, colour)


def _bits(panel: Panel) -> Iterator[Plot]:
    part = panel.settings["part"]
    bars = [
        Bar(
            row["codec"],
            row["codec"],
            {"bits": row["bits_per_item"]},
            f"{row['bits_per_item']:.4g}",
        )
        for row in panel.rows
        if row["bits_per_item"] is not None
    ]
    bounds = [row["entropy_bits"] for row in panel.rows if row["entropy_bits"] is not None]
    yield from bar_chart(
        panel.title(),
        "codec-bits",
        Axis(f"bits a{'n' if part == 'index' else ''} {part}"),
        {"bits": "hue-5"},
        bars,
        bound=bounds[0] if bounds else None,
    )


def _rates(panel: Panel, way: str, colour: str) -> Iterator[Plot]:
    bars = [
        Bar(row["codec"], row["codec"], {way: speed}, short(speed))
        for row in panel.rows
        if (speed := row[f"{way}_items_per_s"]) is not None
    ]
    yield from bar_chart(
        panel.title(f"{way}d".capitalize() + " a second"),
        f"codec-{way}",
        Axis("items a second"),
        {way: colour},
        bars,
    )
