"""Bits an index over the entropy, and bits a value over the error they buy."""

from pathlib import Path
from typing import Any

from thinwire.results.file import Row


def draw(rows: list[Row], path: Path) -> None:
    """A column for each distribution: indices as bars, values as points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((r["distribution"], r["n"], r["density"]) for r in rows))
    size = (4.2 * max(1, len(panels)), 9)
    figure, grid = plt.subplots(
        2, max(1, len(panels)), figsize=size, squeeze=False, constrained_layout=True
    )
    for column, panel in enumerate(panels):
        here = [r for r in rows if (r["distribution"], r["n"], r["density"]) == panel]
        distribution, n, density = panel
        grid[0][column].set_title(f"{distribution}\n{n:,} elements, density {density:g}")
        _indices(grid[0][column], [r for r in here if r["part"] == "index"])
        _values(grid[1][column], [r for r in here if r["part"] == "value"])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _indices(axes: Any, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: row["bits_per_item"])
    axes.barh([r["codec"] for r in rows], [r["bits_per_item"] for r in rows], color="#4477aa")
    if rows:
        axes.axvline(rows[0]["entropy_bits"], color="#cc3311", lw=1, label="entropy")
        axes.set_xlim(0, min(40, 1.05 * rows[-1]["bits_per_item"]))
        axes.legend(fontsize=8, loc="lower right")
    axes.set_xlabel("bits an index")


def _values(axes: Any, rows: list[Row]) -> None:
    for row in rows:
        error = max(row["relative_error"], 1e-5)  # lossless: at the left edge
        axes.scatter(error, row["bits_per_item"], color="#228833", s=18)
        axes.annotate(row["codec"], (error, row["bits_per_item"]), fontsize=7)
    axes.set(xscale="log", xlabel="relative error", ylabel="bits a value")
