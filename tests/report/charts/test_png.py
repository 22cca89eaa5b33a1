"""Figures as files: one each, or all on one sheet."""

from io import BytesIO
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from support import samples
from thinwire.report.charts.png import SHEET_COLUMNS, save_figures, save_sheet
from thinwire.report.figures.codecs import codec_bits
from thinwire.report.figures.kernels import kernel_ratios


def test_each_figure_is_a_file_by_its_name(tmp_path: Path) -> None:
    paths = save_figures(samples.simulate(), tmp_path / "new")
    assert [path.name for path in paths] == ["01-simulate-time.png", "02-simulate-volume.png"]
    assert all(samples.colours(path.read_bytes()) > 10 for path in paths)


def test_a_sheet_has_all_figures_in_rows(tmp_path: Path) -> None:
    one, many = tmp_path / "new" / "one.png", tmp_path / "many.png"
    rows = samples.kernels()
    save_sheet(kernel_ratios(rows), one)
    densities = [0.1 / step for step in range(1, SHEET_COLUMNS + 2)]
    save_sheet(kernel_ratios([r | {"density": d} for d in densities for r in rows]), many)
    (width, height), size = Image.open(one).size, Image.open(many).size
    assert size == (SHEET_COLUMNS * width, 2 * height)
    assert samples.colours(one.read_bytes()) > 10
    last = Image.open(many).crop((0, height, width, 2 * height))
    empty = Image.open(many).crop((width, height, *size))
    assert samples.colours(_png(last)) > 10 and samples.colours(_png(empty)) == 1


def test_no_figures_make_no_sheet(tmp_path: Path) -> None:
    save_sheet(codec_bits([]), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def _png(image: Image.Image) -> bytes:
    out = BytesIO()
    image.save(out, format="png")
    return out.getvalue()
