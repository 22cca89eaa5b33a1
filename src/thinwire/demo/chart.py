"""A line chart as inline SVG. Colours are CSS variables, so a page decides on light and dark."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 320
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 24, 40
HUES = 7
DASHES = ("", "7 3", "2 3")

Point = tuple[float, float]


@dataclass(frozen=True)
class Look:
    """How a series is told apart: a hue, and a dash pattern once the hues are used up."""

    colour: str
    dash: str
    width: float

    @property
    def attributes(self) -> str:
        dash = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'style="stroke:{self.colour}" stroke-width="{self.width}"{dash}'

    def swatch(self) -> str:
        """A short sample of the line for a legend."""
        return (
            '<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true">'
            f'<path d="M0 5H28" fill="none" {self.attributes}/></svg>'
        )


def looks(names: Iterable[str], baseline: str | None = None) -> dict[str, Look]:
    """A look for every name; the baseline is a heavy line in the text's own colour."""
    names = list(dict.fromkeys(names))
    others = [name for name in names if name != baseline]
    chosen = {
        name: Look(f"var(--hue-{i % HUES})", DASHES[i // HUES % len(DASHES)], 1.8)
        for i, name in enumerate(others)
    }
    if baseline is not None:
        chosen[baseline] = Look("var(--ink)", "", 3)
    return chosen


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels. `low` and `high` are values; a logarithmic axis keeps both above 0."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(max(value, low))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values, four to seven of them; powers of ten where the axis is logarithmic."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**exponent for exponent in range(first, last + 1)]
        rough = (self.high - self.low) / 5 or 1
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def short(value: float) -> str:
    """1500 → 1.5k: a tick's label."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def line_chart(
    series: Mapping[str, Sequence[Point]],
    look: Mapping[str, Look],
    x_label: str,
    y_label: str,
    logarithmic_x: bool = False,
    y_limit: float | None = None,
) -> str:
    """One line a series; points that are not finite break it, points above `y_limit` leave it."""
    points = [p for line in series.values() for p in line if all(map(math.isfinite, p))]
    if logarithmic_x:
        points = [p for p in points if p[0] > 0]
    if not points:
        return "<p>No data.</p>"
    xs, ys = zip(*points, strict=True)
    top = min(max(ys), y_limit) if y_limit is not None else max(ys)
    x = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, logarithmic_x)
    y = Axis(min(*ys, top) if min(ys) > 0.2 * top else 0, top, HEIGHT - BOTTOM, TOP)
    # The baseline is drawn last, above the lines that are compared with it.
    ordered = sorted(series, key=lambda name: look[name].width)
    lines = "".join(_line(name, series[name], look[name], x, y) for name in ordered)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(y_label)} against {escape(x_label)}">'
        f"{_frame(x, y, x_label, y_label)}"
        f'<svg x="{LEFT}" y="{TOP - 4}" width="{WIDTH - LEFT - RIGHT + 2}" '
        f'height="{HEIGHT - TOP - BOTTOM + 6}" '
        f'viewBox="{LEFT} {TOP - 4} {WIDTH - LEFT - RIGHT + 2} {HEIGHT - TOP - BOTTOM + 6}">'
        f"{lines}</svg></svg>"  # the inner svg clips what leaves the frame
    )


def _frame(x: Axis, y: Axis, x_label: str, y_label: str) -> str:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    grid = "".join(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{right}"/>' for tick in y.ticks())
    return (
        f'{grid}<path class="axis" d="M{LEFT} {floor}H{right}"/>'
        + "".join(_text(LEFT - 7, y(tick) + 4, short(tick), "end") for tick in y.ticks())
        + "".join(_text(x(tick), floor + 17, short(tick), "middle") for tick in x.ticks())
        + _text((LEFT + right) / 2, HEIGHT - 5, x_label, "middle")
        + _text(2, 12, y_label, "start")
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(name: str, points: Sequence[Point], look: Look, x: Axis, y: Axis) -> str:
    moves, pen = [], "M"
    for px, py in points:
        if not (math.isfinite(px) and math.isfinite(py)) or (x.logarithmic and px <= 0):
            pen = "M"
            continue
        moves.append(f"{pen}{x(px):.1f} {y(py):.1f}")
        pen = "L"
    return (
        f'<path class="line" data-recipe="{escape(name)}" d="{"".join(moves)}" fill="none" '
        f"{look.attributes}><title>{escape(name)}</title></path>"
    )
