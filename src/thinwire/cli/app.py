"""The `thinwire` command. Each subcommand imports what it needs when it runs."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import thinwire
from thinwire.errors import ThinwireError

try:
    import typer

    from thinwire.cli.bench import bench
    from thinwire.cli.console import plain_console
    from thinwire.cli.inspect import inspect as inspect_file
    from thinwire.cli.lab import lab
    from thinwire.cli.options import JsonPath
    from thinwire.cli.plan_commands import add_commands
    from thinwire.cli.report import report
except ImportError:
    sys.exit("thinwire: the command line needs two more packages: pip install 'thinwire[cli]'")

app = typer.Typer(
    name="thinwire",
    help="Data-parallel training over networks that are too slow for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PLAIN_WIDTH = 100  # of a pipe
PIECES = "sparsifier | codec | collective | feedback"


@app.callback()
def _group() -> None:
    """Keeps `thinwire demo` a subcommand however many there are."""


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes on this machine.")] = 4,
    recipes: Annotated[
        str, typer.Option(help="Names, separated by commas; all but auto if not set.")
    ] = "",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of every run; by task if not set.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A third of the steps.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of weights, data and recipes.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run, from --seed on.")] = 1,
    density: Annotated[
        float, typer.Option(help="Share of the elements that sparse recipes select.")
    ] = 0.05,
    out: Annotated[Path, typer.Option(help="Folder for the page and numbers.")] = Path("runs/demo"),
    json: JsonPath = None,
) -> None:
    """Train two small models with every recipe, beside plain averaging, and draw a page."""
    from thinwire.demo.cluster import WorkerError
    from thinwire.demo.plan import Settings
    from thinwire.demo.run import run

    names = tuple(name for part in recipes.split(",") if (name := part.strip()))
    try:
        settings = Settings(workers, names, steps, quick, seed, out, density, seeds)
        run(settings, plain_console(PLAIN_WIDTH), json)
    except WorkerError as error:
        _fail(str(error), code=1)


@app.command("recipes")
def list_recipes(json: JsonPath = None) -> None:
    """List the recipes, and the pieces that each is made of."""
    from rich import box
    from rich.table import Table

    from thinwire.results.file import ResultFile

    results = ResultFile(json)
    rows = [_describe(name) for name in thinwire.recipes()]
    table = Table("recipe", PIECES, "what it is", box=box.SIMPLE)
    for row in rows:
        table.add_row(row["recipe"], row["pieces"], row["doc"])
    results.add(rows)
    plain_console(PLAIN_WIDTH).print(table)


def _describe(name: str) -> dict[str, Any]:
    from thinwire.cookbook import RECIPES

    doc = inspect.getdoc(RECIPES[name]) or ""
    fields = thinwire.to_dict(thinwire.recipe(name))
    pieces = " | ".join(_piece(fields[role]) for role in PIECES.split(" | "))
    return {"recipe": name, "pieces": pieces, "doc": doc.partition("\n")[0], "fields": fields}


def _piece(described: dict[str, Any] | None) -> str:
    """topk, or raw+bf16 for a codec of two parts."""
    if described is None:
        return "none"
    return described.get("name") or "+".join(_piece(part) for part in described.values())


def _fail(reason: str, code: int) -> NoReturn:
    sys.stderr.write(f"thinwire: {reason}\n")
    sys.exit(code)


add_commands(app)  # doctor, plan, simulate
app.add_typer(bench, name="bench")
app.command("lab")(lab)
app.command("report")(report)
app.command("inspect")(inspect_file)


def main() -> None:
    """The entry point: an error of the library is one line and exit code 2, Ctrl-C is 130.

    So is a file or a folder that cannot be read or written.
    """
    try:
        app()
    except ThinwireError as error:
        _fail(str(error), code=2)
    except OSError as error:
        if error.filename is None:
            raise
        # A rename has two names: where it was to go is what the user knows.
        where = error.filename if error.filename2 is None else error.filename2
        in_the_way = isinstance(error, FileExistsError)  # where a folder was to be made
        _fail(f"{where}: {'it is no folder' if in_the_way else error.strerror}", code=2)


if __name__ == "__main__":
    main()
