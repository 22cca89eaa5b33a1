"""The page stands alone: it parses, draws every recipe, and fetches nothing."""

import re
from html.parser import HTMLParser

import pytest

from thinwire.demo.chart import Axis, line_chart, looks, short
from thinwire.demo.page import page
from thinwire.results import Row

VOID = {"meta", "br", "path"}
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

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag == "path" and found.get("class") == "line":
            self.lines.setdefault(found["data-recipe"] or "", []).append(found["d"] or "")
        if tag not in VOID or (tag == "path" and found.get("class") == "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html() -> str:
    return page(rows(), "A <title>", ["A & B"], {"text": "Text", "digits": "Digits"})


def test_it_parses_and_draws_every_recipe_in_every_chart(html: str) -> None:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert set(reader.lines) == set(RECIPES)
    for paths in reader.lines.values():
        assert len(paths) == 4  # two models, against steps and against bytes
        assert all(re.fullmatch(r"(?:[ML][-\d.]+ [-\d.]+)+", path) for path in paths)


def test_it_fetches_nothing(html: str) -> None:
    reader = Reader()
    reader.feed(html)
    assert reader.references == []
    assert not re.search(r"https?://|@import|url\(", html)


def test_text_is_escaped_and_both_schemes_and_phones_are_served(html: str) -> None:
    assert "<title>A &lt;title&gt;</title>" in html
    assert "sign&lt;sgd&gt;" in html and "sign<sgd>" not in html
    assert "prefers-color-scheme: dark" in html and "width=device-width" in html


def test_the_table_compares_with_dense_and_names_divergence(html: str) -> None:
    assert "2.0×" in html  # topk sends half of dense
    assert "+0.000" in html
    assert "diverged" in html


def test_looks_differ_and_the_baseline_stands_out() -> None:
    look = looks([f"recipe{i}" for i in range(21)] + ["dense"], "dense")
    assert len({(each.colour, each.dash) for each in look.values()}) == 22
    assert look["dense"].width > look["recipe0"].width


def test_a_chart_without_finite_points_says_so() -> None:
    nothing = line_chart({"a": [(1.0, float("nan"))]}, looks(["a"]), "x", "y")
    assert "No data" in nothing


def test_one_point_and_equal_values_still_draw() -> None:
    chart = line_chart({"a": [(3.0, 2.0)]}, looks(["a"]), "x", "y", logarithmic_x=True)
    assert 'data-recipe="a"' in chart


def test_ticks_are_round_and_inside() -> None:
    assert Axis(0, 5.5, 0, 1).ticks() == [0, 2, 4]
    assert Axis(2.4, 3.1, 0, 1).ticks() == pytest.approx([2.4, 2.6, 2.8, 3.0])
    assert Axis(5e3, 2e6, 0, 1, logarithmic=True).ticks() == [1e4, 1e5, 1e6]
    assert [short(v) for v in (0.5, 1500, 2e6, 3e9)] == ["0.5", "1.5k", "2M", "3G"]
