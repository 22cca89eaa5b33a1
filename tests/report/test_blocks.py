"""Tables in pages are what the result files say."""

import re
import shutil
from pathlib import Path

import pytest

from support.samples import STEPS
from thinwire.errors import ThinwireError
from thinwire.report.blocks import BLOCK, renewed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGE = (
    "Before\n\n<!-- table: steps data/steps.json gpt2-tiny -->\nold\n<!-- end of table -->\nAfter\n"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_show_what_was_measured(page: Path) -> None:
    """Or make them anew: thinwire report docs/results --page README.md --page docs/results/…"""
    text = page.read_text()
    assert text.count("<!-- table:") == len(BLOCK.findall(text))
    assert renewed(text, page.parent) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_table_of_measurements_is_written_by_hand(page: Path) -> None:
    """None that has numbers with a point: a file that holds them can be named in its place."""
    if page.parent.name == "recipes":
        pytest.skip("made anew with each build of the docs")
    by_hand = BLOCK.sub("", page.read_text()).splitlines()
    rows = [line for line in by_hand if line.startswith("|")]
    assert not [row for row in rows if re.search(r"\| *[-+≈]?\d+\.\d+ *(±|\(|\||m?s\b|%|×)", row)]


def test_a_table_replaces_what_stood_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(STEPS, tmp_path / "data" / "steps.json")
    once = renewed(PAGE, tmp_path)
    assert "old" not in once and "| torch-dense |" in once
    assert once.startswith("Before\n") and once.endswith("<!-- end of table -->\nAfter\n")
    assert renewed(once, tmp_path) == once


def test_without_the_file_there_is_no_table(tmp_path: Path) -> None:
    assert renewed(PAGE, tmp_path) == PAGE.replace("old\n", "")


def test_an_unknown_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ThinwireError, match="no-such"):
        renewed(PAGE.replace("steps data", "no-such data"), tmp_path)
