"""Groups of options, seeds and times, as a command sees them."""

from dataclasses import dataclass
from typing import Annotated

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from thinwire.cli.options import Seed, time_option, with_option_groups


@dataclass(frozen=True)
class Place:
    city: Annotated[str, typer.Option(help="Where.")] = "Bern"
    height: Annotated[float, time_option("How long it takes to climb.")] = 60.0


def run(*arguments: str) -> str:
    @with_option_groups
    def visit(name: str, *, seed: Seed = 0, place: Place, loud: bool = False) -> None:
        """Go there."""
        print(name, seed, place, loud)

    app = typer.Typer()
    app.command()(visit)
    return CliRunner().invoke(app, arguments).output


def test_the_fields_of_a_group_are_options() -> None:
    assert run("me") == "me 0 Place(city='Bern', height=60.0) False\n"
    written = run("me", "--city", "Ulm", "--height", "5ms", "--seed", "3", "--loud")
    assert written == "me 3 Place(city='Ulm', height=0.005) True\n"


def test_the_help_has_them_where_the_group_stands() -> None:
    shown = run("--help")
    places = [shown.index(word) for word in ("Go there", "--seed", "--city", "--height", "--loud")]
    assert places == sorted(places)


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_seeds_have_a_range(seed: str) -> None:
    assert "--seed" in run("me", "--seed", seed)
