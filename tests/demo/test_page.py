"""The demo's page stands alone: it parses, draws every recipe, and fetches nothing."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from support.browser import PHONE, chromium
from thinwire.demo.page import differences, page
from thinwire.results.file import Row

VOID = {"meta", "br", "input"}
RECIPES = ["dense", "topk", "sign<sgd>"]


def rows() -> list[Row]:
    made = []
    for cost, recipe in enumerate(RECIPES, start=1):
        for model in ("text", "digits"):
            for step in range(1, 11):
                loss = None if recipe == "sign<sgd>" and step > 5 else 5.5 - 0.3 * step
                made.append(
                    {
                        "recipe": recipe,
                        "workers": 4,
                        "rate": None,
                        "model": model,
                        "step": step,
                        "loss": loss,
                        "seconds": 0.1 * step,
                        "bytes_sent_per_rank": 10_000 * step // cost,
                    }
                )
    return made


class Reader(HTMLParser):
    """Checks that tags nest, and remembers what the page draws and refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.lines: dict[str, list[str]] = {}
        self.references: list[str] = []
        self.ids: list[str] = []
        self.recipe: str | None = None  # of the line whose path comes next

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        if tag == "g" and found.get("class") == "line":
            self.recipe = found["data-recipe"]
        if tag == "path" and self.recipe is not None:
            self.lines.setdefault(self.recipe, []).append(found["d"] or "")
            self.recipe = None

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html() -> str:
    return page(rows(), "A <title>", ["A & B"], {"text": "Text", "digits": "Digits"})


@pytest.fixture(scope="module")
def reader(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


def test_it_parses_and_draws_every_recipe_in_every_chart(reader: Reader) -> None:
    assert reader.open == []
    assert set(reader.lines) == set(RECIPES)
    for paths in reader.lines.values():
        assert len(paths) == 4  # two models, against steps and against bytes
        assert all(re.fullmatch(r"(?:[ML] [-\d.]+ [-\d.]+ ?)+", path) for path in paths)


def test_it_fetches_nothing(html: str, reader: Reader) -> None:
    assert {reference.removeprefix("#") for reference in reader.references} <= set(reader.ids)
    assert len(set(reader.ids)) == len(reader.ids)
    assert not re.search(r"@import|url\((?!#)", html)
    assert set(re.findall(r"https?://[^'\"]*", html)) <= {"http://www.w3.org/2000/svg"}  # a name


def test_text_is_escaped_and_both_schemes_and_phones_are_served(html: str) -> None:
    assert "<title>A &lt;title&gt;</title>" in html
    assert "sign&lt;sgd&gt;" in html and "sign<sgd>" not in html
    assert "prefers-color-scheme: dark" in html and "width=device-width" in html


def test_the_table_compares_with_dense_and_names_divergence(html: str) -> None:
    assert "2.0×" in html  # topk sends half of dense
    assert "+0.000" in html
    assert "diverged" in html


def test_a_phone_shows_all_of_it_and_only_tables_scroll(html: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": PHONE, "height": 700})
        page.goto((tmp_path / "page.html").as_uri())
        page.add_style_tag(content=".summary { min-width: 600px; }")  # a recipe with a long name
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
        assert page.locator(".scroll").first.evaluate("e => e.scrollWidth > e.clientWidth")
        page.locator(".summary tr[data-recipe=topk]").first.hover()
        assert page.locator(".line.on").count() == 4


def test_recipes_trained_differently_are_named() -> None:
    assert differences(["dense", "topk"]) == ""
    assert differences(["topk", "dgc"]) == "dgc: momentum 0"
