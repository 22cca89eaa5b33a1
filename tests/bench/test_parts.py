"""The parts of a benchmark: result files, spreads, gradients, socket counters, the plan."""

import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import thinwire as tw
from thinwire.bench.peers import BASELINE, PEERS
from thinwire.bench.sockets import bytes_written
from thinwire.bench.sync.run import Settings, plan
from thinwire.bench.timing import LoadMeter, Spread
from thinwire.cli.parse import elements, listed, number, split, time_span, whole
from thinwire.errors import ThinwireError
from thinwire.lab import LabError
from thinwire.results.file import ResultFile
from thinwire.workloads.gradients import SyntheticGradient


def test_a_result_file_is_whole_from_the_start_and_after_every_row(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    results = ResultFile(path)
    assert json.loads(path.read_text())["rows"] == []
    results.add([{"seconds": float("nan"), "seconds_by_phase": {"select": float("inf")}}])
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    assert {"cpu", "cores", "memory_gib", "kernel", "python", "torch"} <= set(content["machine"])
    assert content["rows"] == [{"seconds": None, "seconds_by_phase": {"select": None}}]
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_a_spread_is_the_median_and_what_lies_around_it() -> None:
    spread = Spread.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (spread.median, spread.low, spread.high) == (3.0, 1.0, 5.0)
    assert spread.iqr == 3.0
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 0.0, 2.0)


def test_the_load_of_others_is_never_negative() -> None:
    found = LoadMeter().others(own_seconds=1e9)
    assert found is None or found == 0


def test_gradients_repeat_with_the_seed_and_change_with_the_step_and_the_rank() -> None:
    first, again, other = (SyntheticGradient(100_000, rank, seed=3) for rank in (0, 0, 1))
    step = first.fill().clone()
    assert torch.equal(again.fill(), step)
    assert not torch.equal(other.fill(), step)
    assert not torch.equal(first.fill(), step)
    common = torch.corrcoef(torch.stack([step, other.grad]))[0, 1]
    assert 0.2 < common < 0.8  # alike, not equal


def test_gradients_are_heavy_tailed_and_in_one_place() -> None:
    gradient = SyntheticGradient(100_000, rank=0)
    place = gradient.fill().data_ptr()
    x = gradient.fill()
    assert x.data_ptr() == place and x.numel() == 100_000
    kurtosis = ((x - x.mean()) ** 4).mean() / x.var() ** 2
    assert kurtosis > 10  # 3 for a normal


@pytest.mark.skipif(bytes_written() is None, reason="this kernel does not count socket bytes")
def test_socket_bytes_are_exactly_what_was_written() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outgoing = socket.create_connection(listener.getsockname())
        incoming, _ = listener.accept()
    with outgoing, incoming:
        before = bytes_written()
        assert before is not None
        outgoing.setblocking(False)
        written = outgoing.send(bytes(10_000_000))  # more than fits: some wait to be sent
        assert bytes_written() == before + written
        incoming.sendall(b"back")
        assert bytes_written() == before + written + 4


def test_the_plan_has_every_recipe_and_peer_and_begins_with_dense() -> None:
    cases = plan(Settings(workers=(2, 4), rates=(None,), n=(10, 20)))
    assert {case.recipe for case in cases} == {*tw.recipes(), *PEERS}
    firsts = [case for i, case in enumerate(cases) if not i or cases[i - 1].n != case.n]
    assert len(firsts) == 4 and all(case.recipe == BASELINE for case in firsts)


def test_densities_multiply_only_what_has_one() -> None:
    cases = plan(
        Settings(recipes=("topk", "bf16", "torch-dgc"), density=(0.1, 0.01), rates=(None,))
    )
    found = [(case.recipe, case.density) for case in cases]
    assert found == [
        (BASELINE, None),
        ("topk", 0.1),
        ("topk", 0.01),
        ("bf16", None),
        ("torch-dgc", 0.1),
        ("torch-dgc", 0.01),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(recipes=("no-such-recipe",), rates=(None,)),
        Settings(workers=(3,), nodes=2, rates=(None,)),
        Settings(rates=("fast",)),
        Settings(n=(0,), rates=(None,)),
        Settings(workers=(0,), rates=(None,)),
        Settings(recipes=("topk",), density=(0.01, 2.0), rates=(None,)),
        Settings(n=(10**12,), rates=(None,)),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(settings: Settings) -> None:
    with pytest.raises((ThinwireError, LabError)):
        plan(settings)


def test_links_without_root_are_refused_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="--rates none"):
        plan(Settings(rates=(None, "1gbit")))


def test_lists_on_the_command_line() -> None:
    assert split("dense, topk(0.01, unit=model),,bf16") == (
        "dense",
        "topk(0.01, unit=model)",
        "bf16",
    )
    assert listed("--workers", whole, "4, 8") == (4, 8)


def test_numbers_on_the_command_line() -> None:
    assert [elements(text) for text in ("1000", "64k", "25.6m")] == [1000, 64_000, 25_600_000]
    assert [elements(text) for text in ("4.35M", "2^20", "1e3")] == [4_350_000, 1 << 20, 1000]
    spans = [time_span(text) for text in ("0.5", "100ms", "50us", "0")]
    assert spans == pytest.approx([0.5, 0.1, 50e-6, 0])


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (number, ("", "lots", "nan", "inf")),
        (whole, ("", "x", "0", "-1", "1.5", "1k")),
        (elements, ("", "lots", "m", "0", "-5", "1.5", "inf", "2^x", "2^-1", "2^9999")),
        (time_span, ("", "soon", "-1", "5 min", "nan")),
    ],
)
def test_what_is_none_of_these_is_refused_by_its_text(
    read: Callable[[str], float], texts: tuple[str, ...]
) -> None:
    for text in texts:
        with pytest.raises(ThinwireError, match=re.escape(repr(text))):
            read(text)


@pytest.mark.parametrize("text", ["", " , ", "4,x"])
def test_a_list_that_is_none_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(ThinwireError, match="--workers"):
        listed("--workers", whole, text)
