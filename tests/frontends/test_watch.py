"""`handle.watch()`: real ranks, every few steps a sample, and warnings that come once."""

import json
import warnings
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from support.cluster import Cluster
from thinwire.frontends.watch import Sample, Watch, trace, writer_of


class Scalars:
    """As TensorBoard's writer."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        assert scalar_value >= -1
        self.written.append((tag, global_step))


def watched(group: Any, rank: int, size: int) -> dict[str, Any]:
    model = torch.nn.Linear(60, 50)
    ddp = DistributedDataParallel(model, process_group=group)
    handle = tw.compress(ddp, "topk(0.01)", truth=2)
    scalars = Scalars()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with handle.watch(every=2, tensorboard=scalars, show=False) as watch:
            for _ in range(6):
                ddp(torch.ones(3, 60)).square().sum().backward()
        ddp(torch.ones(3, 60)).sum().backward()  # nobody looks
    handle.close()
    texts = [str(one.message) for one in caught]
    return {"samples": watch.samples, "written": scalars.written, "warnings": texts}


def test_every_second_step_is_a_sample_and_warnings_come_once(cluster: Cluster) -> None:
    for answer in cluster.run(watched, 2):
        assert [sample.step for sample in answer["samples"]] == [2, 4, 6]
        tags = [tag for tag, step in answer["written"] if step == 6]
        assert set(tags) == {
            *("thinwire/seconds/step", "thinwire/seconds/exchange", "thinwire/seconds/work"),
            *("thinwire/bytes/sent", "thinwire/bytes/times_fewer"),
            *("thinwire/truth/cosine", "thinwire/truth/relative_error_now"),
        }
        last = answer["samples"][-1]
        assert last.seconds > 0 and last.sent < last.dense_sent
        kinds = [text.partition(":")[0] for text in answer["warnings"]]
        assert len(kinds) == len(set(kinds))


class Broken:
    """A writer whose disk is full."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        raise OSError("no space left")


def looked_at_by_who_fails(group: Any, rank: int, size: int) -> list[float]:
    """One rank's writer fails: that is told there, and the step is what it is on the others."""
    model = torch.nn.Linear(60, 50)
    ddp = DistributedDataParallel(model, process_group=group)
    handle = tw.compress(ddp, "topk(0.01)")
    sums = []
    with handle.watch(every=2, tensorboard=Broken() if rank == 0 else None, show=False):
        for step in range(4):
            ddp.zero_grad()
            fails = rank == 0 and step % 2
            with pytest.raises(OSError, match="no space left") if fails else nullcontext():
                ddp(torch.full((3, 60), rank + 1.0)).square().sum().backward()
            assert model.weight.grad is not None
            sums.append(float(model.weight.grad.sum()))
    handle.close()
    return sums


def test_a_writer_that_fails_takes_nothing_from_the_step(cluster: Cluster) -> None:
    ours, theirs = cluster.run(looked_at_by_who_fails, 2)
    assert ours == theirs and all(map(isfinite, ours))


def sample(**changed: Any) -> Sample:
    plain: dict[str, Any] = {
        "step": 20,
        "seconds": 0.1,
        "exchange": 0.01,
        "work": 0.002,
        "sent": 1000.0,
        "dense_sent": 100_000.0,
        "truth": None,
    }
    return Sample(**(plain | changed))


def test_a_dense_exchange_is_taken_to_run_at_the_speed_of_this_one() -> None:
    assert sample().dense == pytest.approx(1.0) and sample().busy == pytest.approx(0.012)
    assert sample(sent=0.0).dense == 0 and "bytes/times_fewer" in sample(sent=0.0).scalars()
    truth = {"cosine": 0.5, "relative_error_now": None}
    assert "truth/relative_error_now" not in sample(truth=truth).scalars()
    assert sample(truth=truth).cells()[-1] == "0.500"


def warned(group: Any, rank: int, size: int, seen: Sample) -> list[str]:
    sync = tw.Synchronizer("dense", group)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch = Watch(sync, 1, None, False)
        for _ in range(2):
            watch._warn(seen)
        watch.close()
        watch.close()
    sync.close()
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (sample(work=2.0), "compression does not pay here"),
        (sample(truth={"cosine": 0.05, "relative_error_now": 1.0}), "far from the mean gradient"),
        (sample(truth={"cosine": 0.5, "relative_error_now": 5.0}), "relative error 5"),
        (sample(truth={"cosine": 0.5, "relative_error_now": 1.0}), None),
        (sample(work=2.0, dense_sent=1000.0), None),  # nothing is compressed
    ],
)
def test_it_warns_once_when_it_should(cluster: Cluster, seen: Sample, says: str | None) -> None:
    (texts,) = cluster.run(warned, 1, seen)
    assert len(texts) == (says is not None) and (says is None or says in texts[0])


def test_a_folder_needs_tensorboard_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from thinwire.frontends import watch

    monkeypatch.setattr(watch, "find_spec", lambda name: None)
    with pytest.raises(tw.ThinwireError, match="pip install tensorboard"):
        writer_of("runs/one")
    with pytest.raises(tw.ThinwireError, match="rich"):
        watch._live_table()
    assert writer_of(None) is None


def test_a_trace_opens_in_chrome(tmp_path: Path) -> None:
    with trace(tmp_path / "step.json"), torch.profiler.record_function("thinwire::select"):
        torch.ones(3).sum()
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert any(event.get("name") == "thinwire::select" for event in events)
