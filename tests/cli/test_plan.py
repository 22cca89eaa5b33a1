"""`thinwire plan`: what it prints and writes, and what it refuses. Covers cli/plan_options.py."""

from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

from support.command_line import call, rows
from thinwire.auto.quality import NEAR, quality_of
from thinwire.cli.app import app
from thinwire.cli.plan_options import ClusterOptions
from thinwire.collective import LowRank
from thinwire.errors import ThinwireError


def test_plan_predicts_steps_and_tensors() -> None:
    output = call("plan", "resnet18", "--workers", "64", "--gbps", "1", "--device", "none",
                  "--recipes", "topk", "--compute", "0.1", "--json", "out.json")  # fmt: skip
    found = rows("out.json")
    steps = [row for row in found if "step_seconds" in row]
    tensors = [row for row in found if "tensor" in row]
    assert {row["recipe"] for row in steps} == {"dense", "topk"}
    for row in steps:
        assert 0.1 <= row["step_seconds_low"] <= row["step_seconds"] <= row["step_seconds_high"]
    assert sum(row["n"] for row in tensors) == 11_689_512
    assert "resnet18" in output and "fc.bias" in output and "yes" in output


def test_all_that_keep_the_loss_are_compared_unless_others_are_asked_for() -> None:
    compared = ClusterOptions().pipelines()
    assert {*NEAR, "dense"} <= compared.keys()
    low_rank = [p for p in compared.values() if isinstance(p.collective, LowRank)]
    assert [quality_of(p) for p in low_rank] == ["near"], "no rank that falls behind in its place"


def test_plan_says_how_many_local_steps_pay() -> None:
    settings = ("plan", "gpt2", "--gbps", "0.1", "--latency", "50ms", "--device", "none")
    output = call(*settings, "--recipes", "bf16", "--utilisation", "0.9", "--json", "out.json")
    local = {row["setup"]: row for row in rows("out.json") if "setup" in row}
    assert set(local) == {"diloco", "streaming-diloco", "sparseloco"}
    assert 1 < local["sparseloco"]["every"] < local["diloco"]["every"]
    assert all(row["delay"] < row["every_in_background"] < row["every"] for row in local.values())
    assert "Local steps pay: with bf16 at every step" in " ".join(output.split())


def test_plan_measures_this_machine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("plan", "own:table", "--recipes", "dense", "--device", "cpu")
    Path("own.py").write_text("def table():\n    return {'a': (10, 20)}\n")
    assert "measured on this machine (cpu)" in " ".join(call(*settings).split())
    monkeypatch.setattr("thinwire.cost.calibration.measure_curves", None)
    call(*settings)


def test_a_device_that_there_is_not_is_refused() -> None:
    with pytest.raises(ThinwireError, match="tpu"):
        call("plan", "resnet18", "--device", "tpu")


@pytest.mark.parametrize("time", ["-1", "soon"])
def test_what_is_no_time_is_refused_by_the_options_name(time: str) -> None:
    done = CliRunner().invoke(app, ["plan", "resnet18", "--compute", time])
    assert done.exit_code == 2 and "--compute" in done.output and repr(time) in done.output


def test_a_place_that_cannot_be_written_is_found_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("file").touch()
    monkeypatch.setattr("thinwire.cli.plan.device_costs", None)
    with pytest.raises(OSError, match="file"):
        call("plan", "resnet18", "--json", "file/out.json")
