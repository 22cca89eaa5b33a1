"""The three commands; hooked into the command line by `add_commands(app)`."""

import typer

from thinwire.cli.doctor import doctor
from thinwire.cli.plan import plan
from thinwire.cli.simulate import simulate


def add_commands(app: typer.Typer) -> None:
    """`plan`, `simulate` and `doctor`."""
    for command in (doctor, plan, simulate):
        app.command(command.__name__)(command)
