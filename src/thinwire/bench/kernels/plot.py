"""Roofline: every kernel's time against the time its bytes take."""

import math
from pathlib import Path
from typing import Any

from thinwire.results.file import Row

RATIOS = (1, 2, 10)
COLUMNS = 4  # of the legend


def draw(rows: list[Row], path: Path) -> None:
    """Seconds over floor, one colour an operation; on the lowest line nothing is lost."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    series = sorted(_series(rows).items())
    size = (11, 6 + 0.2 * math.ceil(len(series) / COLUMNS))  # inches, with room for the legend
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    floors = sorted(row["floor_seconds"] for row in rows)
    for ratio in RATIOS if rows else ():
        ends = [1e3 * floors[0], 1e3 * floors[-1]]
        axes.plot(ends, [ratio * end for end in ends], color="0.7", lw=1, zorder=0)
        axes.annotate(f"{ratio} × floor", (ends[1], ratio * ends[1]), color="0.5", fontsize=8)
    for place, (label, members) in enumerate(series):
        axes.scatter(
            [1e3 * row["floor_seconds"] for row in members],
            [1e3 * row["seconds"] for row in members],
            label=label, s=22, color=plt.cm.tab20(place % 20),
            marker="ox^sv"[place // 20 % 5] if members[0]["impl"] in _OURS else "*",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="floor, ms", ylabel="measured, ms")
    axes.set_title("Kernels against the bytes they must move")
    if rows:
        figure.legend(fontsize=8, loc="outside lower center", ncols=COLUMNS)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


_OURS = ("reference", "numba", "triton")


def _series(rows: list[Row]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        op, payloads = row["op"], row["payloads"]
        name = op if payloads is None else f"{op} {payloads}"
        found.setdefault(f"{name} ({row['impl']})", []).append(row)
    return found
