"""Time to a loss in words: the table that a page shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from thinwire.format import optional, rate
from thinwire.report.panels import Panel, by_series, panels
from thinwire.report.steps import UNSHAPED, short_name
from thinwire.results.file import Row

REFERENCE = "torch-bf16"  # what all others are compared with
FINAL = "final"  # the target: its last loss plus one deviation over the seeds
# Of curves that can be compared: what ends lower after more steps is no better for it.
SETTINGS = ("model", "optimizer", "workers", "device", "steps", "samples_per_step")


def shown(row: Row) -> str:
    """A recipe and its settings in few letters; with the density where the row has one.

    >>> shown({"recipe": "union(0.01, dtype='bf16')", "density": None})
    'union 0.01 bf16'
    """
    density = row["density"]
    name = short_name(row["recipe"])
    return name if density is None else f"{name} {100 * density:g} %"


def final_loss(row: Row) -> str:
    """With its deviation over the seeds."""
    if row["final_loss"] is None:
        return "diverged"
    return f"{row['final_loss']:.3f} ± {row['final_deviation']:.3f}"


def converge_table(rows: Sequence[Row], model: str, origin: Mapping[str, Any]) -> str:
    """A model's recipes by rate, as Markdown: seconds to bf16's loss, and the gap at the end."""
    ours = [row for row in rows if row.get("model") == model and "reached" in row]
    return "\n\n".join(_table(panel, origin) for panel in panels(ours, SETTINGS))


def _table(panel: Panel, origin: Mapping[str, Any]) -> str:
    at = list(dict.fromkeys(row["rate"] for row in panel.rows))
    at.sort(key=lambda megabits: float("inf") if megabits is None else megabits)
    heads = [UNSHAPED if megabits is None else rate(megabits) for megabits in at]
    heads = ["seconds to bf16's loss", *heads, "steps", "loss at the end", "gap", "MB per step"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    named = by_series([row | {"named": shown(row)} for row in panel.rows], "named")
    for name, members in sorted(named.items(), key=_place):
        by_rate = {row["rate"]: row for row in members}
        cells = [_seconds(by_rate.get(megabits)) for megabits in at]
        lines.append(f"| {' | '.join([name, *cells, *_ends(members)])} |")
    return _caption(panel, origin) + "\n\n" + "\n".join(lines)


def _place(named: tuple[str, Sequence[Row]]) -> tuple[bool, float, float]:
    """The reference, then who gets there, the soonest over the slowest link first; then by gap."""
    name, rows = named
    slowest = min(rows, key=lambda row: row["rate"] or float("inf"))
    seconds = slowest["reached"][FINAL]["seconds"]
    gap = slowest["final_gap"]
    never = float("inf")
    return (name != REFERENCE, never if seconds is None else seconds, never if gap is None else gap)


def _seconds(row: Row | None) -> str:
    """With how many times sooner than the reference."""
    if row is None:
        return ""
    reached, sooner = row["reached"][FINAL], row["speedup"][FINAL]
    if reached["steps"] is None:
        return "never"
    if reached["seconds"] is None:
        return ""
    computed = "≈ " if row["seconds_are"].startswith("computed") else ""
    times = "" if sooner is None else f" ({sooner:.2f} ×)"
    return f"{computed}{_three_digits(reached['seconds'])}{times}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ends(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    sent = next((r["bytes_per_step"] for r in rows if r["bytes_per_step"] is not None), None)
    return [
        optional(row["reached"][FINAL]["steps"], ".0f") or "never",
        final_loss(row),
        optional(row["final_gap"], "+.3f"),
        optional(None if sent is None else sent / 1e6, ",.2f"),
    ]


def _caption(panel: Panel, origin: Mapping[str, Any]) -> str:
    first = panel.rows[0]
    where = origin.get("gpu") or origin.get("cpu") or first["device"]
    return (
        f"{first['model']}, {first['parameters'] / 1e6:.1f} M parameters, {first['optimizer']}, "
        f"{first['workers']} ranks on one {where}; {first['steps']} steps of "
        f"{first['samples_per_step']} examples of {first['data']}, {first['seeds']} seeds; target "
        f"{first['reached'][FINAL]['loss']:.3f}."
    )
