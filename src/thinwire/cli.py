"""The `thinwire` command. Each subcommand imports what it needs when it runs."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import thinwire
from thinwire.errors import ThinwireError

try:
    import typer
    from rich.console import Console

    from thinwire.bench.command import bench
    from thinwire.inspect_file import inspect as inspect_file
    from thinwire.lab.command import lab
    from thinwire.plan.command import add_commands
    from thinwire.report.command import report
except ImportError:
    sys.exit("thinwire: the command line needs two more packages: pip install 'thinwire[cli]'")

app = typer.Typer(
    name="thinwire",
    help="Data-parallel training over networks that are too slow for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command("inspect")(inspect_file)
app.command("lab")(lab)
app.command("report")(report)
app.add_typer(bench, name="bench")
add_commands(app)  # plan, simulate, doctor

PLAIN_WIDTH = 100  # a pipe has no width of its own
PIECES = "sparsifier | codec | collective | feedback"
JsonPath = Annotated[Path | None, typer.Option("--json", help="Write the results here as JSON.")]


@app.callback()
def _group() -> None:
    """Keeps `thinwire demo` a subcommand however many there are."""


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes on this machine.")] = 4,
    recipes: Annotated[str, typer.Option(help="Names, separated by commas; all if empty.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of every run.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A third of the steps.")] = False,
    seed: Annotated[int, typer.Option(help="Of the weights, the data and the recipes.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of everything, from --seed on.")] = 1,
    density: Annotated[float, typer.Option(help="What sparse recipes keep.")] = 0.05,
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
        run(settings, _console(), json)
    except WorkerError as error:
        _fail(str(error), code=1)


@app.command("recipes")
def list_recipes(json: JsonPath = None) -> None:
    """What there is to choose from, and the pieces each recipe is made of."""
    from rich import box
    from rich.table import Table

    from thinwire.results import ResultFile

    rows = [_describe(name) for name in thinwire.recipes()]
    table = Table("recipe", PIECES, "what it is", box=box.SIMPLE)
    for row in rows:
        table.add_row(row["recipe"], row["pieces"], row["doc"])
    _console().print(table)
    if json is not None:
        ResultFile(json).add(rows)


def _describe(name: str) -> dict[str, Any]:
    from thinwire.recipes import RECIPES

    doc = inspect.getdoc(RECIPES[name]) or ""
    fields = thinwire.to_dict(thinwire.recipe(name))
    pieces = " | ".join(_piece(fields[role]) for role in PIECES.split(" | "))
    return {"recipe": name, "pieces": pieces, "doc": doc.partition("\n")[0], "fields": fields}


def _piece(described: dict[str, Any] | None) -> str:
    """topk, or raw+bf16 for a codec of two parts."""
    if described is None:
        return "none"
    return described.get("name") or "+".join(_piece(part) for part in described.values())


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def _fail(reason: str, code: int) -> NoReturn:
    sys.stderr.write(f"thinwire: {reason}\n")
    sys.exit(code)


def main() -> None:
    """The entry point: an error of the library is one line and exit code 2, Ctrl-C is 130."""
    try:
        app()
    except ThinwireError as error:
        _fail(str(error), code=2)


if __name__ == "__main__":
    main()
