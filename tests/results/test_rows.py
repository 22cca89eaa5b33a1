"""Reading: rows of several files come together, and what is no result file is named."""

import json
from pathlib import Path

import pytest

from thinwire.errors import ThinwireError
from thinwire.results.rows import read

GOOD = {"schema": 1, "machine": {"cores": 2}, "rows": [{"recipe": "dense"}]}


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_folders_are_searched_and_each_row_remembers_its_file(tmp_path: Path) -> None:
    put(tmp_path / "a" / "deep" / "one.json", GOOD)
    put(tmp_path / "a" / "two.json", GOOD)
    results = read([tmp_path / "a", tmp_path / "a" / "two.json"])
    assert [row["file"] for row in results.rows] == ["one.json", "two.json"]
    assert results.origins == {"one.json": {"cores": 2}, "two.json": {"cores": 2}}


def test_a_file_tells_its_commit_and_command_where_it_has_them(tmp_path: Path) -> None:
    new = {"commit": "abc1234", "command": "thinwire recipes"}
    paths = [put(tmp_path / "old.json", GOOD), put(tmp_path / "new.json", GOOD | new)]
    unknown = put(tmp_path / "unknown.json", GOOD | {"commit": None, "command": "x"})
    assert read([*paths, unknown]).origins == {
        "old.json": {"cores": 2},
        "new.json": {"cores": 2, **new},
        "unknown.json": {"cores": 2, "command": "x"},
    }


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [put(tmp_path / folder / "same.json", GOOD) for folder in "ab"]
    assert [row["file"] for row in read(paths).rows] == [path.as_posix() for path in paths]


def test_a_run_that_has_measured_nothing_yet_is_fine(tmp_path: Path) -> None:
    assert read([put(tmp_path / "begun.json", GOOD | {"rows": []})]).rows == []


def curve(x: list[object], y: list[object]) -> dict[str, object]:
    return {"series": "topk", "source": "here", "x": x, "y": y}


def test_what_failed_has_no_numbers(tmp_path: Path) -> None:
    failed = {"recipe": "topk", "steps": None, "points": None, "error": "a peer died"}
    (row,) = read([put(tmp_path / "failed.json", GOOD | {"rows": [failed]})]).rows
    assert row["points"] is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not a result file"),
        ([], "no schema"),
        ({"rows": []}, "no schema"),
        (GOOD | {"schema": 2}, "schema 2"),
        (GOOD | {"rows": {}}, "list of rows"),
        (GOOD | {"machine": None}, "machine"),
        (GOOD | {"rows": [{}, 3]}, "row 1 is 3"),
        (GOOD | {"rows": [{"seconds": "fast"}]}, "row 0: seconds is 'fast'"),
        (GOOD | {"rows": [{"seconds_by_phase": 1}]}, "seconds_by_phase"),
        (GOOD | {"rows": [{"workers": None}]}, "row 0: workers is None, not a number"),
        (GOOD | {"rows": [{"recipe": ["topk"]}]}, "recipe is .*, not a word"),
        (GOOD | {"rows": [{"points": [1]}]}, "points is .*, not lists of numbers"),
        (GOOD | {"rows": [{"points": {"step": [0], "loss": [1, 2]}}]}, "equally long"),
        (GOOD | {"rows": [{"points": {"step": [0], "loss": ["low"]}}]}, "points is"),
        (GOOD | {"rows": [{"curves": [{"series": "a", "x": [1], "y": [2]}]}]}, "curves is"),
        (GOOD | {"rows": [{"curves": [curve([1, 2], [3])]}]}, "curves is"),
    ],
)
def test_what_is_no_result_file_is_named(tmp_path: Path, content: object, reason: str) -> None:
    path = put(tmp_path / "odd.json", content)
    with pytest.raises(ThinwireError, match=rf"odd\.json.*{reason}"):
        read([path])


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ThinwireError, match=r"gone\.json: No such file"):
        read([tmp_path / "gone.json"])
    with pytest.raises(ThinwireError, match="no result files"):
        read([tmp_path])
