"""Profiles of a real DDP script, as torch.profiler exports them."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.command_line import call, rows
from support.extras import CLI, needs
from thinwire.errors import ThinwireError
from thinwire.plan.models import Model
from thinwire.plan.profile import _union, _without, read_profile

SCRIPT = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

dist.init_process_group("gloo")
ddp = DistributedDataParallel(torch.nn.Linear(400, 300))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for _ in range(6):
        optimizer.zero_grad()
        ddp(torch.ones(8, 400)).sum().backward()
        optimizer.step()
if dist.get_rank() == 0:
    profiler.export_chrome_trace("trace.json.gz")
dist.barrier()
dist.destroy_process_group()  # without, Gloo's own threads may abort the process as it ends
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "train.py").write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *torchrun, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder / "trace.json.gz"


def test_it_has_the_ranks_the_gradient_and_what_was_waited_for(trace: Path) -> None:
    profile = read_profile(trace, None)
    seen = profile.seen
    assert seen.workers == 2 and seen.model.numel == 400 * 300 + 300
    rounding = 1 + 1e-9  # what was waited for is a difference
    assert seen.exchange is not None and 0 <= seen.waited <= seen.exchange * rounding
    assert seen.model.compute + seen.waited == pytest.approx(seen.step)
    moved = 2 * 1 / 2 * 4 * seen.model.numel
    assert profile.gbps == pytest.approx(8e-9 * moved / seen.exchange)


@needs(*CLI)
def test_doctor_says_of_it_what_it_says_of_a_script(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--profile", str(trace), "--recipes", "bf16", "--latency", "0"]
    output = call("doctor", *options, "--gbps", "0.01", "--json", "out.json")
    assert "as it is: a step takes" in output and "Yes: bf16 takes" in output
    assert rows("out.json")[-1]["answer"] == "yes"
    assert "the network as the profile shows it" in call("doctor", *options)


def of(spans: list[tuple[str, str, float, float]]) -> dict[str, Any]:
    steps = [("user_annotation", f"ProfilerStep#{i}", 100.0 * i, 100.0) for i in range(3)]
    return {
        "distributedInfo": {"world_size": 4},
        "traceEvents": [
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": {}}
            for cat, name, ts, dur in [*steps, *spans]
        ],
    }


def test_what_hides_behind_compute_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    spans = []
    for start in (0.0, 100.0):
        spans.append(("cpu_op", "aten::mm", start, 50.0))
        spans.append(("cpu_op", "c10d::allreduce_", start + 30, 60.0))  # no compute
        spans.append(("user_annotation", "gloo:all_reduce", start + 30, 60.0))
    path.write_text(json.dumps(of(spans)))
    profile = read_profile(path, Model("mine", {"weight": (1000, 1000)}))
    assert profile.seen.step == pytest.approx(100e-6)
    assert profile.seen.exchange == pytest.approx(60e-6)
    assert profile.seen.waited == pytest.approx(40e-6)
    assert "By itself it takes 0.06 ms: 33% of it hides" in str(profile.seen)
    with pytest.raises(ThinwireError, match="has no shapes: name your model too"):
        read_profile(path, None)


def test_on_a_gpu_kernels_count_and_not_what_launched_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    spans = [
        ("kernel", "gemm", 0.0, 150.0),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 140.0, 20.0),
        ("user_annotation", "nccl:all_reduce", 0.0, 200.0),
        ("cpu_op", "aten::mm", 0.0, 200.0),
    ]
    path.write_text(json.dumps(of(spans)))
    profile = read_profile(path, Model("mine", {"weight": (10,)}))
    assert profile.seen.device.type == "cuda"
    assert profile.seen.exchange == pytest.approx(10e-6)  # of two steps, in one
    assert profile.seen.waited == pytest.approx(5e-6)


GRADIENT = ("kernel", "ncclDevKernel_AllReduce", 0.0, 150.0)
NOTHING = [None, 3, "text", [], {}, float("nan")]


@pytest.mark.parametrize("wrong", NOTHING)
@pytest.mark.parametrize("field", ["ph", "name", "ts", "dur", "args", "cat", "event", "ranks"])
def test_a_damaged_trace_is_read_without_what_is_wrong_or_refused(
    tmp_path: Path, field: str, wrong: object
) -> None:
    trace = of([GRADIENT, ("kernel", "gemm", 0.0, 150.0)])
    events = trace["traceEvents"]
    if field == "event":
        events.append(wrong)
    elif field == "ranks":
        trace["distributedInfo"] = {"world_size": wrong}
    else:
        events.append(events[-1] | {field: wrong})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    if field == "ranks" and wrong != 3:
        with pytest.raises(ThinwireError, match="does not say of how many ranks"):
            read_profile(path, Model("mine", {"weight": (10,)}))
    else:
        assert read_profile(path, Model("mine", {"weight": (10,)})).seen.workers > 2


@pytest.mark.parametrize("dims", [*NOTHING, [3], [[]], [["a"]], [[[3]]]])
def test_shapes_that_are_none_are_not_there(tmp_path: Path, dims: object) -> None:
    trace = of([GRADIENT])
    trace["traceEvents"][-1]["args"] = {"Input Dims": dims, "In msg nelems": dims}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    if dims == 3:  # a number of elements
        assert read_profile(path, None).seen.model.numel == 3
    else:
        with pytest.raises(ThinwireError, match="has no shapes"):
            read_profile(path, None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no json", "is no trace of torch.profiler"),
        (b"[]", "is no trace of torch.profiler"),
        (gzip.compress(b"{}", mtime=0)[:9], "is no trace of torch.profiler"),
        (b"[" * 100_000, "nested too deeply"),
        (gzip.compress(bytes(100), mtime=0)[:10] + bytes(20), "is no trace of torch.profiler"),
        (b'{"traceEvents": 3}', "is no trace of torch.profiler"),
        (json.dumps({"traceEvents": []}).encode(), "fewer than two steps"),
        (json.dumps(of([])).encode(), "no collective of Gloo or NCCL"),
    ],
)
def test_what_is_none_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(ThinwireError, match=words):
        read_profile(path, None)


def test_a_missing_file_is_not_called_a_bad_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_profile(tmp_path / "trace.json", None)


@given(st.lists(st.integers(0, 30), max_size=16), st.lists(st.integers(0, 30), max_size=16))
def test_what_no_other_covers(mine: list[int], theirs: list[int]) -> None:
    """Second by second: what is in a span and in none of the others."""
    ends = (sorted(mine), sorted(theirs))
    spans, others = (_union(zip(x[::2], x[1::2], strict=False)) for x in ends)

    def seconds(of: list[tuple[float, float]]) -> set[int]:
        return {s for begin, end in of for s in range(int(begin), int(end))}

    assert seconds(_without(spans, others)) == seconds(spans) - seconds(others)
