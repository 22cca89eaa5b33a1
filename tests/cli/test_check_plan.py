"""`thinwire check-plan`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from support.command_line import call, rows
from thinwire.errors import ThinwireError


def write(path, *rows):
    same = {"model": "gpt2-tiny", "workers": 4, "rate": 10.0, "density": None, "device": "cpu"}
    content = {"schema": 1, "machine": {}, "rows": [same | row for row in rows]}
    Path(path).write_text(json.dumps(content))


def test_it_says_how_far_off_predictions_are():
    write("steps.json", {"recipe": "compute alone", "step_seconds": 0.01},
          {"recipe": "torch-dense", "step_seconds": 0.5}, {"recipe": "bf16", "step_seconds": 0.3},
          {"recipe": "union", "step_seconds": 0.1})  # fmt: skip
    output = call("check-plan", "steps.json", "--json", "out.json")
    assert "Median error of 2 predictions" in output
    *compared, summary = rows("out.json")
    assert [row["recipe"] for row in compared] == ["bf16", "union"]
    errors = [abs(row["error"]) for row in compared]
    assert summary["median_error"] == pytest.approx(sum(errors) / 2)


def test_a_file_without_a_calibration_is_refused():
    write("steps.json", {"recipe": "compute alone", "step_seconds": 0.01})
    with pytest.raises(ThinwireError, match="no calibration"):
        call("check-plan", "steps.json", "--calibration", "steps.json")
    for network in (3, {}, {"link": {"alpha": -1, "beta": 0}}):
        write("calibration.json", {"network": network, "costs": {}})
        with pytest.raises(ThinwireError, match=r"calibration\.json: its calibration is damaged"):
            call("check-plan", "steps.json", "--calibration", "calibration.json")
    with pytest.raises(ThinwireError, match="nothing to compare"):
        call("check-plan", "steps.json")
