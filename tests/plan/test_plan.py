"""`thinwire plan | simulate | doctor`: what they print, what they write, how they fail."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import typer
from typer.testing import CliRunner

from thinwire.cli.doctor import diagnose
from thinwire.cli.plan_commands import add_commands
from thinwire.cli.simulate import worker_range
from thinwire.cost.calibration import Calibration
from thinwire.cost.predict import Prediction
from thinwire.errors import ThinwireError
from thinwire.plan.measure import measure
from thinwire.plan.models import find_model
from thinwire.report.kinds import by_kind

SIMULATED = ["recipe", "workers", "alpha", "beta", "n", "density", "seconds", "bytes_per_rank"]
OWN_MODEL = """
import torch
def network():
    return torch.nn.Linear(100, 200)
def table():
    return {"a": (10, 20), "b": [30]}
def nothing():
    return 3
def odd():
    return {"a": 5}
def needy(size):
    return {"a": (size,)}
SIZES = {"a": (1,)}
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def app_of_plan() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    add_commands(app)
    return app


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app_of_plan(), arguments)
    if done.exception is not None:
        raise done.exception
    assert "\x1b" not in done.output
    return done.output


def rows(path: str) -> list[dict]:
    content = json.loads(Path(path).read_text())
    assert content["schema"] == 1
    return content["rows"]


def test_simulate_writes_the_rows_that_others_read() -> None:
    output = call("simulate", "--recipes", "topk,ok-topk", "--workers", "2..16", "--gbps", "1",
                  "--n", "1m", "--json", "out.json", "--png", "figures")  # fmt: skip
    found = rows("out.json")
    assert [row["recipe"] for row in found] == ["dense"] * 4 + ["topk"] * 4 + ["ok-topk"] * 4
    assert all(set(SIMULATED) <= row.keys() for row in found)
    assert [kind.name for kind in by_kind(found)] == ["simulate"]
    assert found[0]["density"] is None and found[4]["density"] == 0.01
    assert found[0]["seconds"] == pytest.approx(2 * 50e-6 + 4e6 * 8e-9)
    assert "workers" in output and len(list(Path("figures").glob("*.png"))) == 2


def test_simulate_takes_the_papers_numbers() -> None:
    call("simulate", "--recipes", "gtopk", "--workers", "4", "--alpha", "0.436e-3", "--beta",
         "9e-9", "--n", "25m", "--density", "0.001", "--json", "out.json")  # fmt: skip
    dense, gtopk = rows("out.json")
    assert dense["seconds"] == pytest.approx(6 * 0.436e-3 + 1.5 * 1e8 * 9e-9)
    assert gtopk["seconds"] == pytest.approx(4 * 0.436e-3 + 4 * 25_000 * 8 * 9e-9, rel=2e-3)


def test_simulate_of_a_model_has_a_unit_for_each_tensor() -> None:
    call("simulate", "--recipes", "topk", "--workers", "2", "--model", "resnet18", "--json", "m")
    call("simulate", "--recipes", "topk", "--workers", "2", "--n", "11689512", "--json", "n")
    by_tensor, at_once = rows("m")[1], rows("n")[1]
    assert by_tensor["n"] == at_once["n"] == 11_689_512
    assert by_tensor["seconds"] > at_once["seconds"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2..4096", [1 << p for p in range(1, 13)]), ("3,5", [3, 5]), ("8", [8]), ("4..4", [4])],
)
def test_ranges_of_workers(text: str, numbers: list[int]) -> None:
    assert worker_range(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "8..2", "0..4", "2..", "-1"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(ThinwireError, match="workers="):
        worker_range(text)


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
    assert "resnet18" in output and "fc.weight" in output and "yes" in output


def test_plan_measures_this_machine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("plan", "own:table", "--recipes", "dense", "--device", "cpu")
    Path("own.py").write_text(OWN_MODEL)
    assert "measured on this machine (cpu)" in " ".join(call(*settings).split())
    monkeypatch.setattr("thinwire.cost.calibration.measure_curves", None)
    call(*settings)


def test_models_of_the_users_own(tmp_path: Path) -> None:
    Path("mine.py").write_text(OWN_MODEL)
    assert find_model("mine:network").shapes == {"weight": (200, 100), "bias": (200,)}
    assert find_model("mine:table").numel == 230
    for name, problem in (
        ("mine:nothing", "dict of shapes"),
        ("mine:odd", "dict of shapes"),
        ("mine:needy", "without arguments"),
        ("mine:SIZES", "without arguments"),
        ("mine:absent", "no model"),
        ("absent:model", "no model"),
        ("resnet51", "resnet50"),
    ):
        with pytest.raises(ThinwireError, match=problem):
            find_model(name)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("simulate", "--beta", "1e-9", "--gbps", "1"), "give one of them"),
        (("simulate", "--gbps", "0"), "gbps=0"),
        (("simulate", "--recipes", "nosuch"), "nosuch"),
        (("simulate", "--workers", "6", "--node-size", "4"), "do not fill"),
        (("simulate", "--n", "0"), "'0' is not a number of elements"),
        (("simulate", "--density", "2"), "density=2.0"),
        (("plan", "resnet18", "--device", "tpu"), "tpu"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ThinwireError, match=problem):
        call(*arguments)


def test_times_have_units_and_may_not_be_negative() -> None:
    options = ("simulate", "--recipes", "dense", "--workers", "2", "--n", "1m", "--json")
    for name, latency in (("seconds.json", "1e-4"), ("unit.json", "100us")):
        call(*options, name, "--latency", latency)
        assert rows(name)[0]["alpha"] == pytest.approx(1e-4)
    for wrong in ("-1", "soon"):
        done = CliRunner().invoke(app_of_plan(), ["plan", "resnet18", "--compute", wrong])
        assert done.exit_code == 2 and "--compute" in done.output and repr(wrong) in done.output


def test_a_place_that_cannot_be_written_is_found_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("file").touch()
    monkeypatch.setattr("thinwire.cli.plan.device_costs", None)
    with pytest.raises(OSError, match="file"):
        call("plan", "resnet18", "--json", "file/out.json")


@pytest.mark.parametrize(("gbps", "word"), [("0.1", "Yes: "), ("100000", "No: ")])
def test_doctor_says_yes_or_no(gbps: str, word: str) -> None:
    output = call("doctor", "resnet18", "--workers", "8", "--gbps", gbps, "--recipes", "topk",
                  "--latency", "0", "--json", "out.json")  # fmt: skip
    assert word in output
    summary = rows("out.json")[-1]
    assert summary["worth"] == (word == "Yes: ") and summary["verdict"].startswith(word)
    assert Calibration.from_dict(summary).network.link.beta == pytest.approx(8e-9 / float(gbps))


def test_doctor_says_when_it_is_not_sure() -> None:
    def made(seconds: float, low: float, high: float) -> Prediction:
        return Prediction(seconds, low, high, 0.0, ())

    dense = made(1.0, 0.9, 1.1)
    assert "overlap" in diagnose({"topk": made(0.8, 0.6, 0.95), "dense": dense}, 0.1)[1]
    assert "overlap" not in diagnose({"topk": made(0.5, 0.4, 0.6), "dense": dense}, 0.1)[1]
    assert diagnose({"topk": made(0.97, 0.9, 1.0), "dense": dense}, 0.1)[0] is False
    assert "hides behind" in diagnose({"dense": dense, "topk": made(1.1, 1.0, 1.2)}, 1.0)[1]


def measured_by(group, rank, size, folder):
    import os

    os.environ["XDG_CACHE_HOME"] = folder
    case = {"recipes": "dense", "density": 0.01, "node_size": 1, "refresh": False}
    return measure(case, rank, SimpleNamespace)["calibration"]


def test_ranks_measure_the_same_for_the_doctor(cluster, tmp_path: Path) -> None:
    first, second = cluster.run(measured_by, 2, str(tmp_path))
    assert first == second
    assert Calibration.from_dict(first).network.link.alpha > 0
