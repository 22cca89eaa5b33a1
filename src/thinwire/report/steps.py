"""What figures and tables of whole steps share: names, rates, and the table itself."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from thinwire.format import optional, rate
from thinwire.report.panels import by_series, panels
from thinwire.results.file import Row

COMPUTE = "compute alone"  # in place of a recipe: nothing is exchanged
UNSHAPED = "unshaped"
_WARM_UP = re.compile(r"warm_up=\{'steps': *(\d+)\}")


def short_name(recipe: str) -> str:
    """A recipe and its settings in few letters; pieces and recipes by parameter as they are.

    >>> short_name("topk(0.01, codec='regional+bf16')"), short_name("int4(rotate=True)")
    ('topk 0.01 regional+bf16', 'int4 rotate')
    >>> short_name("topk(0.01, warm_up={'steps': 30})")
    'topk 0.01 warm-up 30'
    >>> short_name("int4@5+1(fragments=5, moments=mean)")
    'int4@5+1 fragments=5 moments=mean'
    """
    exchanged, local_steps, settings = recipe.rpartition("@")
    if local_steps:
        after = settings.replace("(", " ").replace(",", " ").rstrip(")")
        return f"{short_name(exchanged)}@{' '.join(after.split())}"
    if recipe[:1] == "{" or "|" in recipe:
        return recipe
    name, _, arguments = recipe.partition("(")
    arguments = _WARM_UP.sub(r"warm-up \1", arguments)
    parts = (part.removesuffix("=True").rpartition("=")[2] for part in arguments[:-1].split(","))
    return " ".join([name, *filter(None, (part.strip(" '\"") for part in parts))])


def rates(rows: Sequence[Row]) -> list[float]:
    """Those of the links, from slow to fast."""
    return sorted({row["rate"] for row in rows if row["rate"] is not None})


def steps_table(rows: Sequence[Row], model: str, origin: Mapping[str, Any]) -> str:
    """A model's recipes by rate, as Markdown: milliseconds per step, and above compute alone.

    Rows that are not of timed steps are passed over: `bench converge` has such ones too.
    """
    tables = []
    timed = [row for row in rows if row["model"] == model and "step_seconds" in row]
    for panel in panels(timed, ("workers", "device")):
        columns: list[float | None] = [*rates(panel.rows)]
        if any(row["rate"] is None for row in panel.rows if row["recipe"] != COMPUTE):
            columns.append(None)
        heads = [UNSHAPED if at is None else rate(at) for at in columns]
        lines = [
            f"| {' | '.join([model, *heads, 'MB per step', 'MB more memory'])} |",
            "|---" * (len(columns) + 3) + "|",
        ]
        for recipe, members in by_series(panel.rows, "recipe").items():
            if recipe != COMPUTE:
                lines.append(_line(recipe, members, columns))
        tables.append(_caption(panel.rows, origin) + "\n\n" + "\n".join(lines))
    return "\n\n".join(tables)


def _line(recipe: str, rows: Sequence[Row], columns: Sequence[float | None]) -> str:
    by_rate = {row["rate"]: row for row in rows}
    cells = [_cell(by_rate.get(at)) for at in columns]
    measured = [row for row in rows if row["step_seconds"] is not None]
    last = measured[-1] if measured else {}
    sent, more = last.get("bytes_per_step"), last.get("memory_above_dense_bytes")
    cells += [_millions(sent, ",.1f"), _millions(more, ",.0f")]
    return f"| {short_name(recipe)} | {' | '.join(cells)} |"


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row["step_seconds"] is None:
        return "failed"
    whole, above = row["step_seconds"], row["above_compute_seconds"]
    return f"{1000 * whole:.0f}" + ("" if above is None else f" ({1000 * above:+.0f})")


def _millions(value: float | None, form: str) -> str:
    return optional(None if value is None else value / 1e6, form)


def _caption(rows: Sequence[Row], origin: Mapping[str, Any]) -> str:
    alone = [row["step_seconds"] for row in rows if row["recipe"] == COMPUTE]
    steps = [row["steps"] for row in rows if row["steps"] is not None]
    first = rows[0]
    where = origin.get("gpu") or origin.get("cpu") or first["device"]
    words = [
        f"{first['model']}, {first['parameters'] / 1e6:.1f} M parameters, {first['workers']} ranks "
        f"on one {where}",
        "milliseconds per step (above compute alone), medians of "
        + (f"{max(steps)} steps" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"),
    ]
    if alone and alone[0] is not None:
        words.append(f"compute alone {1000 * alone[0]:.0f}")
    return "; ".join(words) + "."
