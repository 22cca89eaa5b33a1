"""What all charts share. Each is one matplotlib figure, for the page and for PNG.

All are as wide as a phone's screen, so that their text stays readable there. Distances are in
inches from the figure's edges, since every figure is as high as what it holds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from thinwire.format import short
from thinwire.report.charts.palette import LIGHT
from thinwire.report.charts.svg import mark_series

WIDTH = 5.0
TITLE_ROW, HEAD, KEY_ROW, TICKS, RIGHT = 0.18, 0.44, 0.172, 0.3, 0.27
TITLE_LETTERS = 60  # that fit on a line
LETTER = 0.082  # about the width of one at the size of the text
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "text.parse_math": False,
    "lines.scale_dashes": False,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["faint"],
    "axes.facecolor": LIGHT["paper"],
    "figure.facecolor": LIGHT["paper"],
    "xtick.color": LIGHT["faint"],
    "ytick.color": LIGHT["faint"],
    "grid.color": LIGHT["rule"],
    "axes.axisbelow": True,
}


@dataclass(frozen=True)
class Plot:
    """A figure, with the title that it also shows and a name for its files."""

    title: str
    name: str
    figure: Figure

    def numbered(self, number: int) -> "Plot":
        """With a name that no other figure of a report has."""
        return replace(self, name=f"{number:02}-{self.name}")


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and how. Ticks of one `at_values` are the values that occur."""

    label: str
    form: Callable[[float], str] = short
    log: bool = False
    at_values: bool = False

    @property
    def formatter(self) -> FuncFormatter:
        return FuncFormatter(lambda value, _: self.form(value))


def round_ticks(most: int) -> MaxNLocator:
    """Ticks at 1, 2 or 5 times a power of ten."""
    return MaxNLocator(most, steps=[1, 2, 5, 10])


def frame(
    title: str,
    y_label: str,
    height: float,
    left: float,
    key: Mapping[str, Artist],
    x_label: float = 0.0,
    series: Mapping[str, str] | None = None,
) -> tuple[Figure, Axes]:
    """Title and axis label above the axes, from the left; below the ticks `x_label` and the key.

    A key of `series` can be pointed at; each has the colour that it then gets, or none.
    """
    lines = wrap(title, TITLE_LETTERS)
    columns = _columns(key)
    below = TICKS + x_label + KEY_ROW * math.ceil(len(key) / columns)
    total = HEAD + TITLE_ROW * len(lines) + height + below
    figure = Figure(figsize=(WIDTH, total))
    for row, line in enumerate(lines):
        figure.text(0.1 / WIDTH, 1 - (0.22 + TITLE_ROW * row) / total, line, fontsize=10)
    under = 0.24 + TITLE_ROW * len(lines)
    figure.text(0.1 / WIDTH, 1 - under / total, y_label, color=LIGHT["faint"])
    axes = figure.add_axes(
        (left / WIDTH, below / total, 1 - (left + RIGHT) / WIDTH, height / total)
    )
    axes.tick_params(length=0)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    if key:
        _draw_key(figure, key, columns, series or {})
    return figure, axes


def _columns(names: Mapping[str, Artist]) -> int:
    """How many fit side by side in the key."""
    widest = 0.5 + LETTER * max(map(len, names), default=0)
    return max(1, min(len(names), int((WIDTH - 0.2) / widest)))


def _draw_key(
    figure: Figure, handles: Mapping[str, Artist], columns: int, series: Mapping[str, str]
) -> None:
    legend = figure.legend(
        list(handles.values()),
        list(handles),
        loc="lower left",
        bbox_to_anchor=(0.02, 0),
        ncols=columns,
        frameon=False,
        borderpad=0.2,
        borderaxespad=0,
        labelspacing=0.25,
        columnspacing=1.2,
        handlelength=2.2,
    )
    entries = zip(handles, legend.legend_handles, legend.get_texts(), strict=True)
    for name, *artists in entries if series else ():
        for artist in filter(None, artists):
            mark_series(artist, "key", name, series[name])
