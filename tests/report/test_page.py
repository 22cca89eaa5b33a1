"""The page in a real browser: it loads, filters, sorts, saves, prints, and fits a phone.

With the mouse, and with the keyboard alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import PHONE, chromium, screenshot
from support.extras import CLI, needs
from support.samples import colours

pytestmark = needs(*CLI, "matplotlib")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """Loaded; whatever it complains about fails the test that used it."""
    complaints: list[str] = []
    page = browser.new_page(accept_downloads=True)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(report.as_uri())
    assert complaints.pop(0) == report.as_uri()
    yield page
    page.close()
    fetched = [text for text in complaints if not text.startswith(("blob:", "data:"))]
    assert fetched == []


def test_it_loads_without_errors_and_no_figure_is_blank(page: Any) -> None:
    charts = page.locator("svg.chart").all()
    assert len(charts) == 26
    for chart in charts:
        assert colours(screenshot(chart)) > 10, chart.get_attribute("aria-label")


def test_the_text_filter_hides_rows_and_fades_their_lines(page: Any) -> None:
    rows = page.locator("#sync tbody tr")
    assert page.locator("#sync tbody tr:visible").count() == rows.count() == 26
    page.fill("#sync input", "gtopk gbit")
    assert page.locator("#sync tbody tr:visible").count() == 1
    assert page.inner_text("#sync output") == "1 of 26 rows"
    off = page.locator("#sync .line.off").all()
    assert off and {e.get_attribute("data-recipe") for e in off}.isdisjoint({"gtopk"})
    assert page.locator("#train tbody tr:visible").count() > 1  # only its own section
    page.fill("#sync input", "")
    assert page.locator("#sync tbody tr:visible").count() == 26
    assert page.locator("#sync .off").count() == 0


def test_with_the_keyboard_alone_rows_are_filtered(page: Any) -> None:
    page.locator("#sync figure button").last.focus()
    page.keyboard.press("Tab")
    page.keyboard.type("gtopk gbit")
    assert page.inner_text("#sync output") == "1 of 26 rows"
    page.keyboard.press("Escape")  # as browsers do in a box for a search
    assert page.inner_text("#sync output") == "26 of 26 rows"


def test_choices_filter_by_column_and_add_up(page: Any) -> None:
    page.select_option("#sync select[aria-label=workers]", "8")
    assert page.inner_text("#sync output") == "18 of 26 rows"
    page.select_option("#sync select[aria-label=recipe]", "topk")
    assert page.inner_text("#sync output") == "3 of 26 rows"
    shown = page.locator("#sync tbody tr:visible td:first-child").all_inner_texts()
    assert shown == ["topk"] * 3


def test_pointing_at_a_series_shows_it_alone(page: Any) -> None:
    page.locator("#train .key[data-recipe=topk] text").first.hover()
    assert page.locator("#train .line.on").count() == 6
    others = page.locator("#train .line[data-recipe=dense]").first
    page.wait_for_function("e => getComputedStyle(e).opacity < 0.5", arg=others.element_handle())


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page: Any) -> None:
    page.set_viewport_size({"width": PHONE, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert page.locator(".rows").first.evaluate("e => e.scrollWidth > e.clientWidth")
    for box in [e.bounding_box() for e in page.locator("svg.chart, form, h2, figure button").all()]:
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= PHONE
    sizes = page.locator("svg.chart text").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 9


def test_dark_and_light_are_both_served(page: Any) -> None:
    def seen(scheme: str) -> tuple[str, bytes]:
        page.emulate_media(color_scheme=scheme)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return paper, screenshot(page.locator("svg.chart").first)

    light, dark = seen("light"), seen("dark")
    assert light[0] != dark[0] and light[1] != dark[1]
    assert max(map(int, re.findall(r"\d+", dark[0])[:3])) < 64


def first_column(page: Any) -> list[str]:
    texts: list[str] = page.locator("#sync tbody tr:visible td:first-child").all_inner_texts()
    return texts


def test_a_heading_sorts_by_numbers_and_says_so(page: Any) -> None:
    head = page.locator("#sync .found th", has_text="rate").first
    column = head.evaluate("e => e.cellIndex")

    def shown() -> list[str]:
        cells = page.locator(f"#sync .found tbody td:nth-child({column + 1})")
        return list(dict.fromkeys(cells.all_inner_texts()))

    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert shown()[:2] == ["100 Mbit/s", "1 Gbit/s"]
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert shown()[:2] == ["1 Gbit/s", "100 Mbit/s"]
    other = page.locator("#sync .found th").first
    other.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "none"
    assert first_column(page) == sorted(first_column(page))


def test_with_the_keyboard_alone_a_series_is_shown_and_kept(page: Any) -> None:
    key = page.locator("#train .chart").first.locator(".key[tabindex]")
    assert [e.get_attribute("tabindex") for e in key.all()].count("0") == 1  # one stop on the way
    key.first.focus()
    page.keyboard.press("ArrowRight")
    name = key.nth(1).get_attribute("data-recipe")
    lit = page.locator("#train .line.on").all()
    assert lit and {e.get_attribute("data-recipe") for e in lit} == {name}
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.locator("#train .line.on").count() == len(lit)  # kept
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Escape")
    assert page.locator(".on").count() == 0


def test_of_thirty_recipes_few_have_a_colour_until_they_are_pointed_at(
    browser: Any, tmp_path: Path
) -> None:
    from thinwire.report.figures import draw
    from thinwire.report.kinds import by_kind
    from thinwire.report.page import report_page

    about = {"workers": 4, "rate": 100.0, "model": "m", "overlap": True, "bytes_sent_per_rank": 9}
    names = ["torch-dense", *(f"recipe-{i:02}" for i in range(30))]
    rows = [
        {"recipe": name, **about, "step": step, "seconds": 0.1 * step, "loss": 5 + i - step / 10}
        for i, name in enumerate(names)
        for step in (1, 10, 20)
    ]
    kinds = by_kind(rows)
    (tmp_path / "page.html").write_text(report_page(kinds, draw(kinds), {}))
    page = browser.new_page(viewport={"width": PHONE, "height": 700})
    page.goto((tmp_path / "page.html").as_uri())
    chart = page.locator("svg.chart").first
    assert chart.locator(".line").count() == 31
    assert chart.locator(".line.back").count() == 31 - 1 - 7
    assert chart.locator(".line.back[data-recipe=torch-dense]").count() == 0

    def colour() -> str:
        path = chart.locator(".line[data-recipe=recipe-29] path").first
        return str(path.evaluate("e => getComputedStyle(e).stroke"))

    grey = colour()
    chart.locator(".key[data-recipe=recipe-29] text").hover()
    assert colour() != grey
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    page.close()


def test_on_paper_all_rows_are_there_in_light_colours_and_nothing_to_press(page: Any) -> None:
    page.fill("#sync input", "gtopk")
    assert page.locator("#sync tbody tr:visible").count() < 26
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#sync tbody tr:visible").count() == 26
    assert page.locator("form:visible, figure button:visible").count() == 0
    assert page.locator("#sync .rows").evaluate("e => e.scrollHeight <= e.clientHeight + 1")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert min(map(int, re.findall(r"\d+", paper)[:3])) > 200


@pytest.mark.parametrize("form", ["svg", "png"])
def test_figures_can_be_saved(page: Any, browser: Any, tmp_path: Path, form: str) -> None:
    figures = page.locator("figure")
    assert page.locator(f"figure button[data-save={form}]").count() == figures.count()
    viewer = browser.new_page()
    for section in page.locator("section").all():  # Chromium ignores an eleventh in a second
        figure = section.locator("figure").last
        with page.expect_download() as started:
            figure.locator(f"button[data-save={form}]").click()
        assert started.value.suggested_filename == f"{figure.get_attribute('id')}.{form}"
        saved = tmp_path / started.value.suggested_filename
        started.value.save_as(saved)
        if form == "svg":  # alone it has no page to take colours from
            assert b"var(--" not in saved.read_bytes()
            viewer.goto(saved.as_uri())
        assert colours(saved.read_bytes() if form == "png" else screenshot(viewer)) > 10
    viewer.close()


def test_what_is_filtered_out_is_not_saved(page: Any, tmp_path: Path) -> None:
    page.fill("#train input", "topk")
    with page.expect_download() as started:
        page.locator("#train button[data-save=svg]").first.click()
    started.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text()
    assert 'data-recipe="topk"' in text and 'data-recipe="dense"' not in text


def test_it_can_be_read_without_its_script(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("svg.chart:visible").count() == 26
    assert page.locator("#sync tbody tr:visible").count() == 26
    assert page.locator("form:visible, button:visible").count() == 0
    context.close()
