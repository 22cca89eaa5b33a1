"""Rows as an HTML table with a text filter and a choice for each setting."""

from collections.abc import Sequence
from html import escape
from typing import Any

from thinwire.format import setting
from thinwire.report.kinds import Kind
from thinwire.results.file import Row

# What a reader picks rows by. All other columns are results; the text filter searches them.
CHOICES = frozenset(
    ["recipe", "workers", "rate", "n", "density", "model", "optimizer", "overlap",
     "seed", "op", "impl",
     "device", "part", "codec", "distribution", "file"]
)  # fmt: skip


def table(kind: Kind, rows: Sequence[Row]) -> str:
    """The filters, which need the page's script, and the table, which does not."""
    flat = [_flat(row) for row in rows]
    columns = _columns(flat)
    texts = [[_text(column, row.get(column)) for column in columns] for row in flat]
    head = "".join(f'<th scope="col">{escape(column.replace("_", " "))}</th>' for column in columns)
    body = "\n".join(
        f'<tr data-recipe="{escape(str(row.get(kind.series, "")))}">'
        + "".join(
            f"<td{_to_sort_by(column, row.get(column))}>{escape(text)}</td>"
            for column, text in zip(columns, cells, strict=True)
        )
        + "</tr>"
        for row, cells in zip(flat, texts, strict=True)
    )
    return (
        f"{filters(len(rows), _choices(columns, texts))}\n"
        '<div class="scroll rows" tabindex="0"><table class="found">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def filters(rows: int, choices: str = "") -> str:
    """A box for words that the rows of a section's table must have, and other choices."""
    return (
        '<form class="filters needs-script"><input type="search" placeholder="Filter rows" '
        f'aria-label="Filter rows">{choices}'
        f"<output>{rows} of {rows} rows</output></form>"
    )


def _choices(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> str:
    return "".join(
        f'<select data-column="{position}" aria-label="{column}">'
        f'<option value="">{column}: all</option>'
        + "".join(f'<option value="{escape(v)}">{escape(v or "none")}</option>' for v in values)
        + "</select>"
        for position, column in enumerate(columns)
        if column in CHOICES
        and len(values := list(dict.fromkeys(cells[position] for cells in texts))) > 1
    )


def _flat(row: Row) -> Row:
    """Objects become a column for each of their fields."""
    flat: Row = {}
    for field, value in row.items():
        if isinstance(value, dict):
            start = field.removeprefix("seconds_by_")
            flat |= {f"{start} {name}": inner for name, inner in _flat(value).items()}
        else:
            flat[field] = value
    return flat


def _columns(rows: Sequence[Row]) -> list[str]:
    """In the order they come, the file last; those that are empty in all rows are left out."""
    columns = dict.fromkeys(
        field
        for row in rows
        for field, value in row.items()
        if value is not None or field == "rate"
    )
    return sorted(columns, key=lambda field: field == "file")


def _to_sort_by(column: str, value: Any) -> str:
    """Where the text is not a number that can be compared: 1 Gbit/s are more than 100 Mbit/s."""
    return f' data-value="{value}"' if column == "rate" and value is not None else ""


def _text(column: str, value: Any) -> str:
    if column == "rate":
        return setting("rate", value)
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
        case {"series": series}:
            return str(series)
        case [first, *_, last]:
            return f"{_text(column, first)} … {_text(column, last)}"
        case list():
            return ", ".join(_text(column, item) for item in value)
    return str(value)
