"""What the runs come to: the target, when each was there, the sentence and the table."""

import pytest

from thinwire.bench.peers import BASELINE
from thinwire.demo.outcome import MOST, outcome
from thinwire.results.file import Row


def run(recipe: str, losses: list[float], seconds: float, sent: int | None = 1000) -> Row:
    count = len(losses)
    return {
        "recipe": recipe,
        "density": None,
        "error": None,
        "seed": 0,
        "final_loss": losses[-1],
        "points": {
            "step": [10 * place for place in range(count)],
            "held_out_loss": losses,
            "seconds": [seconds * place for place in range(count)],
            "bytes": [None if sent is None else sent * place for place in range(count)],
        },
    }


DENSE = run(BASELINE, [6.0, 5.0, 4.0], 10.0)


def test_who_was_first_where_dense_ends() -> None:
    found = outcome([DENSE, run("torch-bf16", [6.0, 5.0, 4.0], 5.0), run("int4", [6, 5, 4.03], 2)])
    assert found.target == pytest.approx(6 - MOST * 2)
    assert found.best is not None and found.best.name == "int4"
    assert found.sentence() == (
        "dense reaches 4.04 after 20 s, thinwire's int4 after 4.0 s: 4.9 times sooner."
    )
    assert found.traced == [BASELINE, "int4"]


def test_the_table_has_the_first_first_and_those_that_never_came_last() -> None:
    rows = [DENSE, run("topk", [6.0, 5.5, 5.0], 1.0, sent=None), run("int4", [6.0, 5.0, 4.0], 2.0)]
    table = outcome(rows).lines()
    assert [line[0] for line in table] == ["int4", "dense", "topk"]
    assert table[0][1:] == ("3.9", "5.0", "4.000", "200.0", "0.1")
    assert table[2][1:] == ("never", "", "5.000", "100.0", "")


def test_no_gain_is_said_too() -> None:
    slower = outcome([DENSE, run("int4", [6.0, 5.0, 4.0], 11.0)])
    assert slower.sentence().endswith("after 22 s: no sooner.")
    never = outcome([DENSE, run("topk", [6.0, 5.5, 5.0], 1.0)])
    assert "none of thinwire's recipes got there" in never.sentence()
    assert never.traced == [BASELINE]


def test_without_dense_there_is_nothing_to_compare_with() -> None:
    assert "nothing to compare with" in outcome([run("topk", [6.0, 5.0], 1.0)]).sentence()
    assert outcome([]).lines() == []
