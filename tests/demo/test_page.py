"""The demo's page stands alone: it parses, draws every recipe, and fetches nothing."""

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.browser import PHONE, chromium
from support.html import Reader
from thinwire.bench.peers import BASELINE
from thinwire.demo.page import NEXT, demo_page
from thinwire.demo.plan import Settings
from thinwire.results.file import ResultFile, Row

RECIPES = [BASELINE, "topk(0.1)", "sign<sgd>"]


def rows() -> list[Row]:
    made: list[Row] = []
    for cost, recipe in enumerate(RECIPES, start=1):
        about = {"recipe": recipe, "workers": 4, "rate": 100.0, "model": "embedding-small"}
        losses = [6.0 - 0.1 * step for step in range(11)]
        if recipe == "sign<sgd>":
            losses[5:] = [None] * 6  # type: ignore[list-item]
        made.append(
            about
            | {"peer": cost == 1, "density": None, "optimizer": "adamw", "device": "cpu"}
            | {"seed": 0, "error": None, "steps": 10, "parameters": 336_896, "data": "text"}
            | {"final_loss": losses[-1], "learning_rate": 0.01}
            | {
                "points": {
                    "step": list(range(11)),
                    "held_out_loss": losses,
                    "seconds": [0.5 * step / cost for step in range(11)],
                    "bytes": [10_000 * step // cost for step in range(11)],
                }
            }
        )
    span = {"stream": "thread 1", "what": "exchange", "start": 0.0, "end": 0.1}
    about = {"recipe": BASELINE, "workers": 4, "rate": 100.0, "model": "embedding-small"}
    return [*made, about | span]


@pytest.fixture(scope="module")
def html() -> str:
    results = ResultFile(None)
    results.add(rows())
    return demo_page(results, Settings())


@pytest.fixture(scope="module")
def reader(html: str) -> Reader:
    return Reader.of(html)


def test_it_parses_and_draws_every_recipe_over_seconds_and_over_bytes(reader: Reader) -> None:
    assert reader.open == []
    assert {name: len(paths) for name, paths in reader.lines.items()} == dict.fromkeys(
        ["torch-dense", "topk 0.1", "sign<sgd>"], 2
    )


def test_it_fetches_nothing(html: str, reader: Reader) -> None:
    assert {reference.removeprefix("#") for reference in reader.references} <= set(reader.ids)
    assert len(set(reader.ids)) == len(reader.ids)
    assert not re.search(r"@import|url\((?!#)", html)
    assert set(re.findall(r"https?://[^'\"]*", html)) <= {"http://www.w3.org/2000/svg"}  # a name


def test_it_opens_with_what_was_gained_and_ends_with_what_to_type(html: str) -> None:
    assert "dense reaches 5.02 after 4.9 s, thinwire&#x27;s topk 0.1 after 2.5 s" in html
    assert html.index("dense reaches") < html.index("<figure") < html.index("What next?")
    assert "thinwire doctor" in html and len(NEXT) == 4
    assert "One step of torch-dense" in html
    assert "sign&lt;sgd&gt;" in html and "sign<sgd>" not in html
    assert "diverged" in html


def test_its_title_promises_no_more_than_was_gained(html: str) -> None:
    assert "<h1>thinwire: the same loss, sooner</h1>" in html
    results = ResultFile(None)
    results.add(row for row in rows() if row["recipe"] != "topk(0.1)")
    assert "sooner</h1>" not in demo_page(results, Settings())


def test_the_loopback_is_called_by_its_name() -> None:
    results = ResultFile(None)
    results.add(rows())
    assert "what compression costs, not what it gains" in demo_page(results, Settings(rate=None))
    assert "No run has ended yet" in demo_page(ResultFile(None), Settings())


def test_in_a_browser_it_fits_a_phone_and_its_table_can_be_filtered(
    html: str, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(html)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": PHONE, "height": 700})
        page.goto((tmp_path / "page.html").as_uri())
        page.add_style_tag(content=".summary { min-width: 600px; }")  # a recipe with a long name
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert page.locator(".scroll").first.evaluate("e => e.scrollWidth > e.clientWidth")
        page.fill("input", "topk 0.1")
        assert page.inner_text("output") == "1 of 3 rows"
        faded = page.locator(".line.off").all()
        assert {line.get_attribute("data-recipe") for line in faded} == {"torch-dense", "sign<sgd>"}
