"""Whole files or none."""

from pathlib import Path

import pytest

from thinwire.files import whole


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
