"""The `thinwire` command: its subcommands together, and every error as one line."""

import errno
import os
import sys
import threading
from collections.abc import Callable
from signal import SIGINT
from typing import Annotated, Any, NoReturn

from thinwire.errors import ThinwireError
from thinwire.version import VERSION

try:
    import typer

    from thinwire.cli.bench import bench
    from thinwire.cli.check_plan import check_plan
    from thinwire.cli.demo import demo
    from thinwire.cli.doctor import doctor
    from thinwire.cli.inspect import inspect
    from thinwire.cli.lab import lab
    from thinwire.cli.options import ScriptCommand
    from thinwire.cli.plan import plan
    from thinwire.cli.recipes import recipes as list_recipes
    from thinwire.cli.report import report
    from thinwire.cli.reproduce import reproduce
    from thinwire.cli.simulate import simulate
except ImportError as error:
    if str(error.name).partition(".")[0] not in ("typer", "rich"):
        raise
    sys.exit("thinwire: the command line needs two more packages: pip install 'thinwire[cli]'")

app = typer.Typer(
    name="thinwire",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"thinwire {VERSION}\n")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show it and exit."),
    ] = False,
) -> None:
    """Data-parallel training over networks that are too slow for it."""


def _fail(reason: str) -> NoReturn:
    sys.stderr.write(f"thinwire: {reason}\n")
    sys.exit(2)


def _hear_later(lost: "sys.UnraisableHookArgs") -> None:
    """A signal came where Python drops what is raised, as in the hooks of a fork: send it again."""
    end = lost.exc_value
    if isinstance(end, SystemExit) and isinstance(end.code, int) and end.code > 128:
        number = end.code - 128  # the lab's way out at SIGTERM and SIGHUP
    elif isinstance(end, KeyboardInterrupt):
        number = SIGINT
    else:
        sys.__unraisablehook__(lost)
        return
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()  # from in here it were lost too


COMMANDS = (
    *(demo, list_recipes, doctor, plan, check_plan, simulate, lab, report, inspect),
    reproduce,
)
OTHERS_OPTIONS: dict[Callable[..., None], dict[str, Any]] = {
    doctor: {"cls": ScriptCommand},
    lab: {"context_settings": {"allow_interspersed_args": False}},
}
"""Commands that take another with its options: what follows it is its own, also without `--`."""
for command in COMMANDS:
    app.command(**OTHERS_OPTIONS.get(command, {}))(command)
app.add_typer(bench, name="bench")


def main() -> None:
    """The entry point.

    An error of the library, or a file that cannot be read or written, is one line and exit code 2;
    Ctrl-C is 130.
    """
    sys.unraisablehook = _hear_later
    try:
        app()
    except ThinwireError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # where the output goes
                _fail(f"output: {error.strerror}")
            raise
        # A rename has two names: where it was to go is what the user knows.
        where = error.filename if error.filename2 is None else error.filename2
        in_the_way = isinstance(error, FileExistsError)  # where a folder was to be made
        _fail(f"{where}: {'it is no folder' if in_the_way else error.strerror}")


if __name__ == "__main__":
    main()
