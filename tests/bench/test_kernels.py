"""`bench kernels`: every operation has its row, its floor, and a baseline beside it.

Covers cli/bench_kernels.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from support.extras import CLI, needs
from thinwire.bench.kernels.encode import RECIPES, WHOLE, Encode
from thinwire.bench.kernels.ops import WORKERS, Inputs, Op
from thinwire.bench.kernels.run import OPS, Settings, cold_caches, plan, run
from thinwire.bench.kernels.timing import LEAST_STEPS, measure
from thinwire.bench.timing import Quiet
from thinwire.errors import ThinwireError
from thinwire.kernels import use
from thinwire.pipeline import Pipeline, PipelineState, Prepared
from thinwire.results.file import ResultFile
from thinwire.types import Sparse, StepContext

FIELDS = {
    *("op", "payloads", "impl", "device", "n", "density", "threads", "calls", "cold"),
    *("seconds", "seconds_min", "seconds_max", "seconds_iqr", "first_seconds"),
    *("floor", "floor_bytes", "floor_seconds", "ratio"),
}
TINY = Settings(n=(4096,), density=(0.01,), seconds=0)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of the reference implementations, which need no compiler."""
    path = tmp_path_factory.mktemp("bench") / "kernels.json"
    with use("reference"):
        assert run(TINY, ResultFile(path), Quiet()) == []
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    found: list[dict[str, Any]] = content["rows"]
    return found


def test_there_is_a_row_for_every_operation(rows: list[dict[str, Any]]) -> None:
    assert [row["op"] for row in rows] == [op.name for op in OPS]
    baselines = {(row["op"], row["impl"]) for row in rows if row["impl"] != "reference"}
    assert {("exact top-k", "torch.topk"), ("compact", "torch dgc")} <= baselines
    assert ("decode", "torch dense") in baselines
    ours = [row["payloads"] for row in rows if (row["op"], row["impl"]) == ("decode", "reference")]
    assert ours == [2, 4, 8, 16]


def test_rows_have_all_fields_and_sound_numbers(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert set(row) == FIELDS, row["op"]
        assert 0 <= row["seconds_min"] <= row["seconds"] <= row["seconds_max"]
        assert row["floor_seconds"] > 0
        assert row["ratio"] == pytest.approx(row["seconds"] / row["floor_seconds"])
        assert (row["n"], row["density"], row["threads"]) == (4096, 0.01, 1)


def test_floors_count_what_must_be_moved(rows: list[dict[str, Any]]) -> None:
    bytes_of = {row["op"]: row["floor_bytes"] for row in rows}
    assert bytes_of["compact"] == bytes_of["decode"] == 4 * 4096
    assert bytes_of["accumulate"] == 12 * 4096
    assert bytes_of["accumulate momentum"] == 20 * 4096


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}, {op.impl}")
def test_ours_and_the_baseline_do_the_same_work(op: Op) -> None:
    """Those of one name that give a dense tensor give the same one."""
    inputs = Inputs(4096, 0.01, torch.device("cpu"))
    with use("reference"):
        result = op.prepare(inputs)()
    assert result is not None
    if op.name == "decode":
        assert op.payloads is not None
        expected = torch.zeros(4096)
        for part in inputs.payloads(op.payloads):
            part.add_to(expected)
        scale = 1 / op.payloads if op.impl == "ours" else 1
        assert torch.equal(result, expected * scale)


def test_inputs_pass_the_threshold_as_often_as_the_density_says() -> None:
    inputs = Inputs(10_000, 0.01, torch.device("cpu"))
    assert int((inputs.x.abs() >= inputs.threshold).sum()) == inputs.k == 100
    for count in (2, 16):
        parts = inputs.payloads(count)
        assert len(parts) == count and all(part.ordered for part in parts)
        assert 0.9 < sum(part.count for part in parts) / (WORKERS * inputs.k) <= 1


def test_the_first_call_is_not_among_the_others() -> None:
    made: list[int] = []
    _, spread, calls = measure(lambda: made.append(1), torch.device("cpu"), seconds=0)
    assert len(made) == calls + 2  # the first, and one to judge how many there can be
    assert spread.low <= spread.median <= spread.high


def test_one_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(inputs: Inputs) -> Any:
        raise RuntimeError("no such luck")

    broken = Op("compact", "torch dgc", "read", lambda i: 1, prepare)
    monkeypatch.setattr("thinwire.bench.kernels.run.OPS", (broken, OPS[1]))
    results = ResultFile(None)
    (failure,) = run(TINY, results, Quiet())
    assert failure.startswith("compact") and "no such luck" in failure
    assert len(results.rows) == 1


def test_steps_of_whole_recipes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whatever else the machine does meets all of them alike."""
    order: list[int] = []

    class Steps:
        def __init__(self, which: int) -> None:
            self.which = which

        def between(self) -> None:
            pass

        def __call__(self) -> None:
            order.append(self.which)

    made = (
        Op(f"encode {i}", "recipe", "rmw", lambda i: 1, lambda _, i=i: Steps(i)) for i in (0, 1)
    )
    monkeypatch.setattr("thinwire.bench.kernels.run.OPS", tuple(made))
    results = ResultFile(None)
    assert run(TINY, results, Quiet()) == []
    assert [row["op"] for row in results.rows] == ["encode 0", "encode 1"]
    assert {row["calls"] for row in results.rows} == {LEAST_STEPS}
    assert order == [0, 1] * (LEAST_STEPS + 2)  # the first, and one to judge how many there can be


def test_a_recipe_that_fails_leaves_the_others_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prepare(inputs: Inputs) -> Any:
        raise RuntimeError("no such luck")

    broken = Op("encode dgc", WHOLE, "rmw", lambda i: 1, prepare)
    monkeypatch.setattr("thinwire.bench.kernels.run.OPS", (OPS[-1], broken, OPS[-2]))
    results = ResultFile(None)
    with use("reference"):
        (failure,) = run(TINY, results, Quiet())
    assert failure.startswith("encode dgc") and "no such luck" in failure
    assert len(results.rows) == 2


def test_threads_sizes_and_densities_multiply() -> None:
    settings = Settings(n=(1000, 2000), density=(0.1, 0.2), threads=(1, 2), ops=("merge",))
    cases = plan(settings)
    assert len(cases) == 8 and {case.op.name for case in cases} == {"merge"}
    before = torch.get_num_threads()
    run(Settings(n=(1000,), threads=(2,), ops=("merge",), seconds=0), ResultFile(None), Quiet())
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (Settings(ops=("merge", "nothing")), "unknown operation 'nothing'; there are: compact; "),
        (Settings(device="tpu"), "device='tpu'"),
        (Settings(n=(10,)), "n=10 "),
        (Settings(n=(1 << 50,)), "GiB"),
        (Settings(density=(0.1, 0.0)), "density=0.0"),
        (Settings(threads=(0,)), "threads="),
        (Settings(threads=(1, 99_999)), "threads=99999 must be from 1 to"),
    ],
)
def test_what_cannot_work_is_refused(settings: Settings, what: str) -> None:
    with pytest.raises(ThinwireError, match=what):
        plan(settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ThinwireError, match="--device cpu"):
        plan(Settings(device="cuda"))


def test_cold_caches_leave_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("NUMBA_CACHE_DIR", "mine")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with cold_caches():
        assert os.environ["NUMBA_CACHE_DIR"] == os.environ["TRITON_CACHE_DIR"] != "mine"
    assert os.environ["NUMBA_CACHE_DIR"] == "mine" and "TRITON_CACHE_DIR" not in os.environ


@needs(*CLI, "matplotlib")
def test_the_command_prints_writes_and_draws(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from thinwire.cli.app import app

    json_path, png = tmp_path / "k.json", tmp_path / "k.png"
    words = ["bench", "kernels", "--device", "cpu", "--n", "4096", "--density", "0.01"]
    words += ["--seconds", "0.001", "--ops", "merge;compact"]
    with use("reference"):
        shown = CliRunner().invoke(app, [*words, "--json", str(json_path), "--png", str(png)])
    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    measured = [line for line in lines if line.startswith(("merge", "compact"))]
    assert any(line.startswith("merge reference 4,096 0.01") for line in measured)
    assert len(json.loads(json_path.read_text())["rows"]) == len(measured) == 3
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_whole_recipe_has_another_gradient_in_every_step() -> None:
    inputs = Inputs(4096, 0.01, torch.device("cpu"))
    work = Encode(tw.recipe("topk", density=0.01), inputs)
    gradients = []
    for _ in range(3):
        work.between()
        gradients.append(work.grad.clone())
        work()
    assert not torch.equal(gradients[0], gradients[1])
    assert all(torch.equal(g.sort().values, inputs.x.sort().values) for g in gradients)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is steady on a GPU is here too."""
    steady = Pipeline.is_steady
    monkeypatch.setattr(Pipeline, "is_steady", lambda p, d: steady(p, torch.device("cuda")))


@pytest.mark.parametrize("name", RECIPES)
def test_a_whole_recipe_goes_the_way_of_training_on_a_gpu(
    name: str, as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without asking the host, and with a flag for what is not finite."""
    contexts: list[StepContext] = []
    prepare = Pipeline.prepare

    def watched(self: Pipeline, grad: Tensor, state: PipelineState, ctx: StepContext) -> Prepared:
        contexts.append(ctx)
        return prepare(self, grad, state, ctx)

    monkeypatch.setattr(Pipeline, "prepare", watched)
    work = Encode(tw.recipe(name, density=0.01), Inputs(4096, 0.01, torch.device("cpu")))
    for _ in range(3):
        work.between()
        work()
    assert [ctx.step for ctx in contexts] == [0, 1, 2]
    assert all(ctx.steady and ctx.bad is not None and not ctx.bad for ctx in contexts)


def test_slots_are_timed_as_a_gpu_sends_them(as_on_a_gpu: None) -> None:
    work = Encode(tw.recipe("dragonn", density=0.01), Inputs(4096, 0.01, torch.device("cpu")))
    work.between()
    selection = work().selection
    assert isinstance(selection, Sparse) and selection.padded and not selection.ordered
