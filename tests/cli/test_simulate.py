"""`thinwire simulate`: the rows it writes, its figures, the times it takes."""

from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from support.command_line import call, rows
from thinwire.errors import ThinwireError
from thinwire.report.kinds import by_kind

SIMULATED = ["recipe", "workers", "alpha", "beta", "n", "density", "seconds", "bytes_per_rank"]


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
    ("arguments", "problem"),
    [
        (("simulate", "--beta", "1e-9", "--gbps", "1"), "give one of them"),
        (("simulate", "--gbps", "0"), "gbps=0"),
        (("simulate", "--recipes", "nosuch"), "nosuch"),
        (("simulate", "--workers", "6", "--node-size", "4"), "do not fill"),
        (("simulate", "--n", "0"), "'0' is not a number of elements"),
        (("simulate", "--density", "2"), "density=2.0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ThinwireError, match=problem):
        call(*arguments)


def test_times_may_have_a_unit() -> None:
    options = ("simulate", "--recipes", "dense", "--workers", "2", "--n", "1m", "--json")
    for name, latency in (("seconds.json", "1e-4"), ("unit.json", "100us")):
        call(*options, name, "--latency", latency)
        assert rows(name)[0]["alpha"] == pytest.approx(1e-4)


def test_more_workers_than_elements_are_simulated() -> None:
    call("simulate", "--recipes", "topk-dsa,ok-topk,omnireduce", "--n", "500k", "--workers",
         "2..1048576", "--json", "out.json")  # fmt: skip
    assert all(row["seconds"] > 0 for row in rows("out.json"))
