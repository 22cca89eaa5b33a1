"""Tables of what the benches measured: every line from a row, and nothing else."""

from pathlib import Path

from thinwire.report.measured import (
    codecs_table,
    encode_table,
    kernels_table,
    sync_table,
    train_table,
)
from thinwire.results.rows import read

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_codecs_are_told_with_their_bits_and_speeds() -> None:
    rows = read([RESULTS / "codecs.json"]).rows
    rice = next(r for r in rows if r["codec"] == "rice" and r["distribution"] == "uniform")
    line = next(line for line in codecs_table(rows, "index", {}).splitlines() if "| rice |" in line)
    assert f"| {rice['bits_per_item']:.2f} |" in line
    assert f"| {rice['encode_items_per_s'] / 1e6:,.0f} |" in line


def test_kernels_are_those_of_one_size_and_density() -> None:
    row = {"op": "decode", "payloads": 4, "impl": "numba", "threads": 1, "n": 8, "density": 0.1,
           "seconds": 0.002, "floor_seconds": 0.001, "ratio": 2.0}  # fmt: skip
    table = kernels_table([row, row | {"n": 4}, row | {"density": 0.2}], "0.1", {})
    assert table.splitlines()[2:] == ["| decode 4 | numba | 1 | 2 | 1 | 2 |"]


def test_recipes_by_size_say_where_one_is_dearer_than_the_other() -> None:
    row = {"op": "encode dgc", "n": 8000, "density": 0.1, "seconds": 0.004, "seconds_min": 0.002}
    other = row | {"op": "encode dragonn", "seconds": 0.003, "seconds_min": 0.0025}
    rows = [row, other, row | {"n": 4000}, other | {"n": 4000, "seconds_min": 0.001}]
    rows += [row | {"op": "encode topk"}]
    lines = encode_table(rows, "dgc,dragonn", {}).splitlines()
    least = "dragonn's least against dgc's"
    assert lines[0] == f"| elements | dgc, ms | dragonn, ms | on average | {least} |"
    assert lines[2] == "| 4,000 | 4 (least 2) | 3 (least 1) | -25 % | -50 % |"
    assert lines[3] == "| 8,000 | 4 (least 2) | 3 (least 2.5) | -25 % | +25 % |"


def test_a_recipe_that_was_not_measured_somewhere_has_a_gap() -> None:
    row = {"recipe": "topk", "workers": 4, "rate": 100.0, "seconds": 0.5, "seconds_min": 0.25,
           "seconds_max": 0.75, "bytes_sent_per_rank": 2000}  # fmt: skip
    rows = [row, row | {"rate": None}, row | {"recipe": "union"}]
    lines = sync_table(rows, "seconds", {}).splitlines()
    assert lines[0] == "|  | 4 workers, 100 Mbit/s | 4 workers, loopback |"
    assert lines[3] == "| union | 0.500 s (0.250 … 0.750) |  |"
    assert sync_table(rows, "bytes", {}).splitlines()[2] == "| topk | 2 KB | 2 KB |"


def test_a_run_that_did_not_reach_the_loss_says_never() -> None:
    row = {"model": "text", "recipe": "topk", "overlap": True, "step_seconds": 0.1, "steps": 10,
           "step_seconds_min": 0.1, "step_seconds_max": 0.2, "bytes_sent_per_rank": 1e7,
           "speedup_over_dense": 2.0, "final_loss": 3.0, "seconds_to_target": None,
           "speedup_to_target": None}  # fmt: skip
    last = train_table([row, {"model": "text", "recipe": "topk"}], "all", {}).splitlines()[-1]
    assert last == "| text | topk | 100 (100 … 200) | 1.00 | 2.00 | 10 | 3.000 | never |  |"
