"""What a row measures is told by its fields."""

import json
from pathlib import Path

from support import samples
from thinwire.report.kinds import by_kind
from thinwire.results.rows import read


def test_every_kind_is_told_by_its_fields(tmp_path: Path) -> None:
    results = read(samples.write(tmp_path))
    counts = {kind.name: len(rows) for kind, rows in by_kind(results.rows).items()}
    demo_rows = len(json.loads(samples.DEMO.read_text())["rows"])
    assert counts == {"sync": 26, "train": demo_rows, "simulate": 8, "kernels": 12, "codecs": 3}


def test_a_row_without_a_field_of_its_kind_is_kept_as_another() -> None:
    row = {key: value for key, value in samples.simulate()[0].items() if key != "seconds"}
    ((kind, rows),) = by_kind([row]).items()
    assert kind.name == "other" and rows == [row]


def test_phases_do_not_make_a_training_row_another_kind() -> None:
    row = json.loads(samples.DEMO.read_text())["rows"][-1]
    row |= {"seconds_by_phase": {"select": 0.1}, "density": 0.01, "parameters": 9}
    assert [kind.name for kind in by_kind([row])] == ["train"]
