"""Options that several commands share, one by one or in groups."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option
from typer.core import TyperCommand

from thinwire.cli.parse import time_span
from thinwire.errors import ThinwireError


class ScriptCommand(TyperCommand):
    """What follows a script is the script's, as after `python`; a `--` before it is not needed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """With the `--` that says so."""
        for place, word in enumerate(args):
            if word == "--":
                break
            if word.endswith(".py"):
                args = [*args[:place], "--", *args[place:]]
                break
        return super().parse_args(ctx, args)


def _read_time(given: Any) -> float:
    """A time, as typer hands it over: as text, or a default as it is. Errors name the option."""
    try:
        return time_span(str(given))
    except ThinwireError as error:
        raise BadParameter(str(error)) from None


def time_option(help: str, **settings: Any) -> Any:
    """For a time with or without a unit."""
    return Option(parser=_read_time, metavar="TIME", help=help, **settings)


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses, each field of which is an option.

    Typer knows only single options, so the signature that it sees has the fields in place of
    their dataclass.
    """
    options: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(command).parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            groups[parameter.name] = group
            options += [
                parameter.replace(name=field.name, default=field.default, annotation=field.type)
                for field in dataclasses.fields(group)
            ]
        else:
            options.append(parameter)

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            given[name] = group(**{field: given.pop(field) for field in fields})
        command(**given)

    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in options}
    return call


Workers = Annotated[str, Option(help="Numbers of processes: 4,8.")]
Nodes = Annotated[
    int | None, Option(min=1, help="Nodes that share the processes; one for each if not set.")
]
Rates = Annotated[str, Option(help="Rates of the links: 1gbit,100mbit; none is unshaped loopback.")]
Densities = Annotated[str, Option(help="Shares of the elements to select: 0.001,0.01.")]
Check = Annotated[
    str, Option(help="Where a link is off its rate: refuse, warn, or skip the check.")
]
Device = Annotated[
    str, Option(help="cuda: on GPUs, which the ranks share, over NCCL; cpu: over Gloo.")
]
Budget = Annotated[
    float | None, Option(min=0, help="Seconds after which no further case is started.")
]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Seed of all that is random.")]
Seconds = Annotated[float, Option(min=0, help="Seconds to spend on each measurement.")]
JsonPath = Annotated[Path | None, Option("--json", help="Write the results here as JSON.")]
PngPath = Annotated[Path | None, Option("--png", help="Draw the results here as PNG.")]
PngFolder = Annotated[Path | None, Option("--png", help="A folder for the figures as PNG.")]
