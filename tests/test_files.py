"""Whole files or none; JSON that may be damaged."""

import errno
from pathlib import Path

import pytest

from thinwire.files import from_json, whole


def test_it_takes_the_place_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text("old")
    with whole(file) as beside:
        beside.write_text("new")
        assert beside.suffix == ".json"
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_was_there_stays_and_half_a_file_does_not(
    tmp_path: Path, error: type[BaseException]
) -> None:
    file = tmp_path / "result.json"
    file.write_text("old")
    with pytest.raises(error), whole(file) as beside:
        beside.write_text("ne")
        raise error
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    """What writes to an open file does not know its name."""
    with pytest.raises(OSError, match="No space left") as full, whole(tmp_path / "result.json"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(tmp_path / "result.json")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        from_json(text)
