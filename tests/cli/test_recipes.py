"""`thinwire recipes`: every recipe, with the fields that rebuild it."""

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import thinwire as tw
from support.command_line import call, call_alone, rows


def test_every_recipe_is_listed_plainly_and_as_json() -> None:
    done = call_alone("recipes", "--json", "recipes.json")
    assert done.returncode == 0 and done.stderr == ""
    assert "\x1b" not in done.stdout
    listed = rows("recipes.json")
    assert [row["recipe"] for row in listed] == list(tw.recipes())
    assert all(row["recipe"] in done.stdout and row["doc"] for row in listed)


def test_the_listed_fields_rebuild_the_recipe() -> None:
    call("recipes", "--json", "recipes.json")
    for row in rows("recipes.json"):
        assert tw.recipe(row["fields"]) == tw.recipe(row["recipe"])
