"""Figures as PNG files."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import ThinwireError
from thinwire.report.kinds import by_kind
from thinwire.results.file import Row

if TYPE_CHECKING:
    from thinwire.report.charts.drawing import Plot


def refuse_without_matplotlib() -> None:
    """Before anything is measured that could not be drawn."""
    if find_spec("matplotlib") is None:
        raise ThinwireError("figures need matplotlib: pip install 'thinwire[plot]'")


def save_figures(rows: Iterable[Row], folder: Path) -> list[Path]:
    """All figures that the rows can fill, as `thinwire report` draws them."""
    from thinwire.report.figures import draw

    return save((plot for plots in draw(by_kind(rows)).values() for plot in plots), folder)


def save(plots: Iterable["Plot"], folder: Path) -> list[Path]:
    """One file a figure."""
    from thinwire.report.charts.svg import png

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in plots:
        paths.append(folder / f"{plot.name}.png")
        paths[-1].write_bytes(png(plot.figure))
    return paths
