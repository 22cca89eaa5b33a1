"""`thinwire recipes`: the names to choose from."""

import inspect
from typing import Any

from rich import box
from rich.table import Table

import thinwire
from thinwire.cli.console import plain_console
from thinwire.cli.options import JsonPath
from thinwire.cookbook import RECIPES
from thinwire.results.file import ResultFile, Row

PIECES = "sparsifier | codec | collective | feedback"


def recipes(json: JsonPath = None) -> None:
    """List the recipes, and the pieces that each is made of."""
    results = ResultFile(json)
    results.add(_describe(name) for name in RECIPES)
    table = Table("recipe", PIECES, "what it is", box=box.SIMPLE)
    for row in results.rows:
        table.add_row(row["recipe"], row["pieces"], row["doc"])
    plain_console(width=100).print(table)


def _describe(name: str) -> Row:
    doc = inspect.getdoc(RECIPES[name]) or ""
    fields = thinwire.recipe(name).to_dict()
    pieces = " | ".join(_piece(fields[role]) for role in PIECES.split(" | "))
    return {"recipe": name, "pieces": pieces, "doc": doc.partition("\n")[0], "fields": fields}


def _piece(described: dict[str, Any] | None) -> str:
    """topk, or raw+bf16 for a codec of two parts."""
    if described is None:
        return "none"
    return described.get("name") or "+".join(_piece(part) for part in described.values())
