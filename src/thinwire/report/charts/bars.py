"""Bars from left to right, so that names can be read on a phone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from thinwire.report.charts import drawing
from thinwire.report.charts.drawing import LETTER, RIGHT, WIDTH, Axis, Plot
from thinwire.report.charts.palette import LIGHT
from thinwire.report.charts.svg import mark_series

LONGEST = 28  # letters of a bar's name
BAR_ROW = 0.27  # inches


@dataclass(frozen=True)
class Bar:
    """`lengths` by part, drawn end to end, and what is written behind them."""

    series: str
    name: str
    lengths: dict[str, float]
    text: str

    @property
    def label(self) -> str:
        """The name, cut where it would leave no room for the bar."""
        return self.name if len(self.name) <= LONGEST else self.name[: LONGEST - 1] + "…"


def bar_chart(
    title: str,
    name: str,
    x: Axis,
    colours: dict[str, str],
    bars: Sequence[Bar],
    limit: float | None = None,
    bound: float | None = None,
) -> Iterator[Plot]:
    """Bars from left to right, their parts in `colours`; longer ones than `limit` are cut there.

    A part is named below the chart if there are several. `bound` is drawn across all bars.
    """
    bars = [bar for bar in bars if bar.lengths]
    if not bars:
        return
    parts = {
        part: colour for part, colour in colours.items() if any(part in b.lengths for b in bars)
    }
    longest = max(sum(bar.lengths.values()) for bar in bars)
    end = min(longest, limit or longest) or 1.0
    with matplotlib.rc_context(drawing.STYLE):
        patches = {part: Patch(color=LIGHT[colour]) for part, colour in parts.items()}
        key = patches if len(parts) > 1 else {}
        left = 0.2 + LETTER * max(len(bar.label) for bar in bars)
        figure, axes = drawing.frame(title, x.label, BAR_ROW * len(bars) + 0.1, left, key)
        room = LETTER * max(len(bar.text) for bar in bars) / (WIDTH - left - RIGHT)
        axes.set_xlim(0, max(end, bound or 0) / max(0.5, 0.95 - room))
        for row, bar in enumerate(bars):
            _draw_bar(axes, row, bar, parts)
        if bound is not None:
            axes.axvline(bound, color=LIGHT["ink"], linewidth=1.4)
        _scale(axes, x, bars)
    yield Plot(title, name, figure)


def _draw_bar(axes: Axes, row: int, bar: Bar, parts: dict[str, str]) -> None:
    """The text stands behind the bar, or at the bar's end where there is no room behind it."""
    end = axes.get_xlim()[1]
    start = 0.0
    for part in [part for part in parts if part in bar.lengths]:
        length = bar.lengths[part]
        patches = axes.barh(row, length, left=start, height=0.72, color=LIGHT[parts[part]])
        mark_series(patches[0], "bar", bar.series)
        start += length
    behind = (1 - start / end) * axes.get_position().width * WIDTH + RIGHT  # inches
    inside = behind < LETTER * (len(bar.text) + 1)
    text = axes.annotate(
        bar.text,
        (min(start, end), row),
        xytext=(-4 if inside else 4, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center_baseline",
        color=LIGHT["paper" if inside else "ink"],
        # A bound that crosses the text stays behind it.
        bbox=None if inside else {"facecolor": LIGHT["paper"], "edgecolor": "none", "pad": 0.5},
    )
    mark_series(text, "bar", bar.series)


def _scale(axes: Axes, x: Axis, bars: Sequence[Bar]) -> None:
    axes.set_ylim(len(bars) - 0.45, -0.6)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars], color=LIGHT["ink"])
    for label, bar in zip(axes.get_yticklabels(), bars, strict=True):
        mark_series(label, "key", bar.series)
    axes.xaxis.set_major_locator(drawing.round_ticks(5))
    axes.xaxis.set_major_formatter(x.formatter)
    axes.grid(axis="x")
