"""Papers beside what was measured of them, as Markdown: experiment by experiment, and in short.

Rows with `curves` are numbers, those with a `verdict` what they say of the paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from thinwire.format import duration, short
from thinwire.report.panels import by_series
from thinwire.results.file import Row

YES, IN_PART, NO = "holds", "holds in part", "does not hold here"
UNTESTED, NOTHING = "cannot be tested here", "nothing to test"
MOST_ROWS = 7  # of a table of numbers
HERE = "here"


def paper_section(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """Each experiment with its statements and numbers; `what` is the paper, or one item."""
    parts = [_where(rows, origin), *_first(rows)]
    for item, members in by_series(rows, "item").items():
        found = [row for row in members if "verdict" in row and row["says"]]
        if not found:
            continue
        first = found[0]
        parts.append(f"### {item[0].upper()}{item[1:]}: {first['title']}\n\n{first['how']}")
        lines = ([f["says"], f["theirs"], f["ours"], f"**{f['verdict']}**"] for f in found)
        parts.append(markdown(("the paper says", "theirs", "ours", "verdict"), lines))
        parts += [_numbers(row) for row in members if "curves" in row]
    return "\n\n".join([*parts, *_left_out(rows)])


def _first(rows: Sequence[Row]) -> list[str]:
    """What does not hold, before anything that does."""
    told = []
    for verdict in (NO, IN_PART):
        said = [f"{r['says']} ({r['item']})" for r in rows if r.get("verdict") == verdict]
        if said:
            told.append(f"**{verdict[0].upper()}{verdict[1:]}:** {'; '.join(said)}.")
    return told


def _left_out(rows: Sequence[Row]) -> list[str]:
    """What was not measured, and why."""
    others = [row for row in rows if "verdict" in row and not row["says"]]
    lines = [[row["item"], row["title"], row["how"], row["verdict"]] for row in others]
    head = "**Not measured:**"
    return [head, markdown(("", "shows", "why", "verdict"), lines)] if lines else []


def verdicts(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """A line for each figure and table of each paper."""
    lines = []
    for paper, of_paper in by_series(rows, "paper").items():
        for item, members in by_series(of_paper, "item").items():
            found = [row for row in members if "verdict" in row]
            if found:
                texts = ["; ".join(row[f] for row in found if row[f]) for f in ("theirs", "ours")]
                about = [f"[{paper}]({_page(paper)})", item, found[0]["title"], found[0]["how"]]
                lines.append([*about, *texts, overall([row["verdict"] for row in found])])
    heads = ("paper", "", "shows", "here", "theirs", "ours", "verdict")
    return markdown(heads, lines)


def overall(each: Sequence[str]) -> str:
    """Of an item with several statements."""
    tested = [verdict for verdict in each if verdict not in (UNTESTED, NOTHING)] or list(each)
    return tested[0] if len(set(tested)) == 1 else IN_PART


def markdown(heads: Sequence[str], lines: Any) -> str:
    """A table."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |".replace("| --- ", "|---") for row in rows).replace(
        "|--- |", "|---|"
    )


def in_unit(value: float | None, unit: str) -> str:
    """A number as a reader wants it; nothing where there is none."""
    if value is None:
        return ""
    match unit:
        case "s":
            return duration(value)
        case "bytes":
            return f"{short(value)}B" if abs(value) >= 1000 else f"{value:.0f} B"
        case "share":
            return f"{100 * value:.3g} %"
        case "×":
            return f"{value:.3g} ×"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _numbers(row: Row) -> str:
    """x down, series across."""
    curves = row["curves"]
    places = list(dict.fromkeys(x for curve in curves for x in curve["x"]))
    if len(places) > MOST_ROWS:
        every = (len(places) - 1) / (MOST_ROWS - 1)
        places = [places[round(step * every)] for step in range(MOST_ROWS)]
    heads = [
        curve["series"] + ("" if curve["source"] == HERE else f", {curve['source']}")
        for curve in curves
    ]
    columns = [dict(zip(curve["x"], curve["y"], strict=True)) for curve in curves]
    lines = [
        [_place(x), *(in_unit(column.get(x), row["unit"]) for column in columns)] for x in places
    ]
    return f"{row['panel']}:\n\n" + markdown((row["x"], *heads), lines)


def _place(x: float | str) -> str:
    return f"{x:,}" if isinstance(x, int) else x if isinstance(x, str) else f"{x:g}"


def _where(rows: Sequence[Row], origin: Mapping[str, Any]) -> str:
    """Experiments may have been measured at several commits."""
    commits = dict.fromkeys(row["commit"] for row in rows if row.get("commit"))
    machine = f"{origin.get('cores', '?')} cores of an {origin.get('cpu', 'unknown')}"
    load = f"which had {origin.get('load_before', 0):.0f} other processes to run"
    took = sum(
        {row["item"]: row.get("took_seconds", 0) for row in rows if "curves" in row}.values()
    )
    within = f" in {took // 60:.0f} min {took % 60:.0f} s" if took else ""
    name = rows[0]["paper"]
    return f"`thinwire reproduce {name}` at {', '.join(commits)}{within}, on {machine}, {load}."


def _page(paper: str) -> str:
    return {"s2": "s2-reducer"}.get(paper, paper) + ".md"
