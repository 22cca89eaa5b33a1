"""Which rows are drawn together: those that agree in all but what a chart compares."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from thinwire.format import setting
from thinwire.results.file import Row


@dataclass(frozen=True)
class Panel:
    """Rows with the same settings."""

    settings: dict[str, Any]
    rows: list[Row]

    def title(self, *first: str) -> str:
        """What is shown, then the settings."""
        words = [setting(field, value) for field, value in self.settings.items()]
        return ", ".join(word for word in (*first, *words) if word)


def panels(rows: Sequence[Row], fields: Sequence[str]) -> list[Panel]:
    """One for each combination of `fields` that occurs, in the order of the rows.

    A row without a density (dense has none) belongs to the panels of all densities.
    """
    keys = dict.fromkeys(tuple(row.get(field) for field in fields) for row in rows)
    combinations = [dict(zip(fields, key, strict=True)) for key in keys]
    return [
        Panel(settings, [row for row in rows if _belongs(row, settings)])
        for settings in combinations
        if not any(other != settings and _belongs(settings, other) for other in combinations)
    ]


def _belongs(row: Row, settings: dict[str, Any]) -> bool:
    return all(
        row.get(field) == value or (field == "density" and row.get(field) is None)
        for field, value in settings.items()
    )


def by_series(rows: Iterable[Row], field: str) -> dict[str, list[Row]]:
    """The rows of each series, in the order of the rows."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(str(row[field]), []).append(row)
    return series


def number(value: float | None) -> float:
    """JSON's null, of a loss that diverged or a count that is not known, as NaN."""
    return float("nan") if value is None else float(value)
