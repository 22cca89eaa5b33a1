"""Figures as PNG files, in the light colours. Importing this module needs no matplotlib."""

from collections.abc import Iterable
from importlib.util import find_spec
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import ThinwireError
from thinwire.files import whole
from thinwire.report.charts.palette import LIGHT
from thinwire.report.kinds import by_kind
from thinwire.results.file import Row

if TYPE_CHECKING:
    from thinwire.report.charts.drawing import Plot

FILE_DPI, SHEET_DPI = 200, 100
SHEET_COLUMNS = 4


def refuse_without_matplotlib() -> None:
    """Before anything is measured that could not be drawn."""
    if find_spec("matplotlib") is None:
        raise ThinwireError("figures need matplotlib: pip install 'thinwire[plot]'")


def save_figures(rows: Iterable[Row], folder: Path) -> list[Path]:
    """All figures that the rows can fill, as `thinwire report` draws them."""
    from thinwire.report.figures import draw

    return save((plot for plots in draw(by_kind(rows)).values() for plot in plots), folder)


def save(plots: Iterable["Plot"], folder: Path) -> list[Path]:
    """One file for each figure."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in plots:
        paths.append(folder / f"{plot.name}.png")
        with whole(paths[-1]) as beside:
            plot.figure.savefig(beside, dpi=FILE_DPI)
    return paths


def save_sheet(plots: Iterable["Plot"], path: Path) -> None:
    """All figures, which are equally wide, in one file; no file where there are none."""
    from PIL import Image  # matplotlib needs it too

    images = []
    for plot in plots:
        plot.figure.savefig(file := BytesIO(), format="png", dpi=SHEET_DPI)
        images.append(Image.open(file))
    if not images:
        return
    width = images[0].width
    rows = [images[i : i + SHEET_COLUMNS] for i in range(0, len(images), SHEET_COLUMNS)]
    heights = [max(image.height for image in row) for row in rows]
    sheet = Image.new("RGB", (len(rows[0]) * width, sum(heights)), LIGHT["paper"])
    for row, top in zip(rows, accumulate([0, *heights[:-1]]), strict=True):
        for column, image in enumerate(row):
            sheet.paste(image, (column * width, top))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as beside:
        sheet.save(beside, optimize=True)
