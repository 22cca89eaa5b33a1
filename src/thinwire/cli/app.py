"""The `thinwire` command: its subcommands together, and every error as one line."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

from thinwire.errors import ThinwireError

try:
    import typer

    from thinwire.cli.bench import bench
    from thinwire.cli.console import plain_console
    from thinwire.cli.doctor import doctor
    from thinwire.cli.inspect import inspect
    from thinwire.cli.lab import lab
    from thinwire.cli.options import JsonPath
    from thinwire.cli.plan import plan
    from thinwire.cli.recipes import recipes as list_recipes
    from thinwire.cli.report import report
    from thinwire.cli.simulate import simulate
except ImportError as error:
    if str(error.name).partition(".")[0] not in ("typer", "rich"):
        raise
    sys.exit("thinwire: the command line needs two more packages: pip install 'thinwire[cli]'")

app = typer.Typer(
    name="thinwire",
    help="Data-parallel training over networks that are too slow for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PLAIN_WIDTH = 100  # of a pipe


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


def _fail(reason: str, code: int) -> NoReturn:
    sys.stderr.write(f"thinwire: {reason}\n")
    sys.exit(code)


for command in (list_recipes, doctor, plan, simulate, lab, report, inspect):
    app.command()(command)
app.add_typer(bench, name="bench")


def main() -> None:
    """The entry point.

    An error of the library, or a file that cannot be read or written, is one line and exit code 2;
    Ctrl-C is 130.
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
