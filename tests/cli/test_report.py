"""The command: a page, and beside it PNG files and all rows."""

from html import escape
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from support import samples
from thinwire.cli.report import report as command
from thinwire.errors import ThinwireError
from thinwire.results.file import ResultFile
from thinwire.results.origin import commit
from thinwire.results.rows import read


def test_every_png_opens_and_is_not_blank(report: Path) -> None:
    files = sorted((report.parent / "png").iterdir())
    assert len(files) == 26
    for file in files:
        assert samples.colours(file.read_bytes()) > 10, file.name


def test_the_rows_of_all_files_are_one_result_file(report: Path) -> None:
    together = read([report.parent / "all.json"])
    apart = read([report.parent / "results", *samples.recorded()])
    assert together.rows == apart.rows and together.origins == apart.origins


def test_the_page_says_which_commit_and_command_a_file_is_from(report: Path) -> None:
    origins = read([report.parent / "results"]).origins
    text = report.read_text()
    for file, origin in origins.items():
        assert origin.get("commit") == commit()
        known = f"commit {commit()}, " if commit() else ""
        assert f"{file}: {known}command {escape(origin['command'])}, system " in text


def test_a_file_that_is_no_result_leaves_no_page(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("{}")
    with pytest.raises(ThinwireError, match=r"odd\.json"):
        command([tmp_path], tmp_path / "never.html")
    assert not (tmp_path / "never.html").exists()


def test_rows_to_come_make_a_page_that_says_so(tmp_path: Path) -> None:
    ResultFile(tmp_path / "begun.json")
    command([tmp_path], tmp_path / "page.html")
    assert "no rows in these files yet" in (tmp_path / "page.html").read_text()
