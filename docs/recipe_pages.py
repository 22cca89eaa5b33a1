"""A page for each recipe, made where the docs are built: what its docstring and our results say.

The pages lie in docs/recipes/ and are not kept.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import thinwire as tw
from thinwire.cookbook import RECIPES
from thinwire.format import duration, rate, short
from thinwire.report.converge import converge_table
from thinwire.results.file import Row
from thinwire.results.rows import read

ROLES = ("sparsifier", "codec", "collective", "feedback")
RESULTS = Path(__file__).parent / "results"
REFERENCES = ("torch-bf16", "torch-dense")  # beside which a recipe's losses stand
GRADIENT = "| over | seconds | bytes sent per rank | dense |\n|---|---|---|---|\n"


def page(name: str) -> str:
    """As Markdown."""
    make = RECIPES[name]
    parts = [
        f"# {name}",
        inspect.getdoc(make) or "",
        "## Settings",
        f"```python\ntw.recipe({_call(name, make)})\n```",
        f"The pieces it is made of: `{_pieces(name)}`.",
        *_losses(name),
        *_exchange(name),
        "All of them, and which to take: [recipes](../recipes.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _call(name: str, make: Any) -> str:
    settings = inspect.signature(make).parameters.values()
    given = [p for p in settings if p.kind is not p.VAR_KEYWORD]
    return ", ".join([f'"{name}"', *(f"{p.name}={p.default!r}" for p in given)])


def _pieces(name: str) -> str:
    fields = tw.recipe(name).to_dict()
    return " | ".join(_piece(fields[role]) for role in ROLES)


def _piece(described: dict[str, Any] | None) -> str:
    """`topk`, or `raw+bf16` for a codec of two parts."""
    if described is None:
        return "none"
    return described.get("name") or "+".join(_piece(part) for part in described.values())


def _losses(name: str) -> Iterator[str]:
    """Time to a loss, beside PyTorch's own."""
    path = RESULTS / "converge-cpu.json"
    results = read([path])
    rows = [row for row in results.rows if "reached" in row]
    own = [row for row in rows if _base(row) == name]
    if own:
        chosen = [row for row in rows if row["recipe"] in REFERENCES] + own
        yield "## Time to a loss"
        yield converge_table(chosen, own[0]["model"], results.origins[path.name])


def _exchange(name: str) -> Iterator[str]:
    """One gradient between four workers."""
    rows = read([RESULTS / "sync-peers-4.json"]).rows
    dense = {row["rate"]: row["seconds"] for row in rows if row["recipe"] == "torch-dense"}
    own = [row for row in rows if row["recipe"] == name and row["seconds"] is not None]
    if own:
        first = own[0]
        yield "## One gradient"
        yield (
            f"{short(first['n'])} elements between {first['workers']} workers, at a density of "
            f"{first['density']:g}."
        )
        yield GRADIENT + "\n".join(_line(row, dense.get(row["rate"])) for row in own)


def _line(row: Row, dense: float | None) -> str:
    sent = f"{row['bytes_sent_per_rank']:,.0f}"
    base = "" if dense is None else duration(dense)
    return f"| {rate(row['rate'])} | {duration(row['seconds'])} | {sent} | {base} |"


def _base(row: Row) -> str:
    return str(row["recipe"]).removeprefix("optim:").partition("(")[0]


def write(app: Any) -> None:
    """All of them, into the sources that Sphinx is about to read."""
    folder = Path(app.srcdir) / "recipes"
    folder.mkdir(exist_ok=True)
    for name in RECIPES:
        (folder / f"{name}.md").write_text(page(name), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
