"""What docs/doors.md says of versions is what was run, and what `pip install thinwire` asks for."""

import json
import re
import runpy
import tomllib
from pathlib import Path

from thinwire.results.rows import read

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def rows() -> list[dict]:
    return json.loads((ROOT / "docs" / "results" / "versions.json").read_text())["rows"]


def test_the_table_has_every_row_of_its_file() -> None:
    line = runpy.run_path(str(ROOT / "scripts" / "versions.py"))["line"]
    page = (ROOT / "docs" / "doors.md").read_text()
    assert [row["environment"] for row in rows() if line(row) not in page] == []


def test_a_report_reads_the_whole_folder() -> None:
    read_rows = read([ROOT / "docs" / "results"]).rows
    assert [row["environment"] for row in read_rows if row["file"] == "versions.json"]


def test_the_lowest_that_are_asked_for_were_tried() -> None:
    (lowest,) = (row["packages"] for row in rows() if row["environment"] == "lowest")
    asked = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["doors"]
    bounds = dict(re.fullmatch(r"(\w+)>=([\d.]+)", one).groups() for one in asked)
    for name in ("torch", "numba", "accelerate", "transformers", "lightning"):
        assert lowest[name].startswith(f"{bounds[name]}."), name


def test_the_package_alone_brings_no_more_than_the_core() -> None:
    assert {re.match(r"\w+", one)[0] for one in PROJECT["dependencies"]} == {
        "torch",
        "numpy",
        "numba",
    }
