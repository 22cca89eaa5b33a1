"""The three commands; hooked into the command line by `add_commands(app)`."""

import typer

from thinwire.plan.doctor_command import doctor
from thinwire.plan.plan_command import plan
from thinwire.plan.simulate_command import simulate


def add_commands(app: typer.Typer) -> None:
    """`plan`, `simulate` and `doctor`."""
    for command in (doctor, plan, simulate):
        app.command(command.__name__)(command)
