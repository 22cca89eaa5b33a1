"""Tables that compare rows with each other.

Covers report/compared.py.
"""

from thinwire.report.compared import auto_table, seeds_table, simulate_table


def lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def test_auto_beside_the_best_by_name() -> None:
    seconds = {"torch-dense": 0.4, "dense": 0.5, "auto": 0.2, "topk": 0.1, "union": 0.3}
    rows = [
        {"recipe": name, "rate": rate, "n": 1_000_000, "seconds": s, "seconds_min": s,
         "seconds_max": 2 * s, "decision": {"choice": ["topk | bf16"]}}
        for rate in (100.0, None) for name, s in seconds.items()
    ]  # fmt: skip
    first, second = lines(auto_table(rows, "all", {}))[2:]
    assert (first[0], second[0]) == ("loopback", "100 Mbit/s")
    assert second[4:] == [
        "200.0 (200.0 … 400.0)", "topk with bf16", "topk 100.0 (100.0 … 200.0)", "0.40", "2.00",
    ]  # fmt: skip


def test_seeds_are_compared_with_the_same_seed() -> None:
    rows = [
        {"recipe": name, "seed": seed, "step": 10, "bytes_sent_per_rank": 2e7,
         "held_out_loss": seed + behind, "settings": settings}
        for name, settings, behind in (
            ("dense", {}, 0.0), ("topk", {"density": 0.2}, 0.25),
            ("union", {"density": 0.1, "block": 32}, 0.5), ("topk", {"density": 0.1}, 0.75),
        )
        for seed in (1, 3)
    ]  # fmt: skip
    found = lines(seeds_table(rows, "all", {}))[2:]
    assert [row[:2] for row in found] == [
        ["dense", ""], ["topk", "0.1"], ["topk", "0.2"], ["union, blocks of 32", "0.1"],
    ]  # fmt: skip
    assert found[0][2:] == ["2.000 ± 1.414", "", "2.00"]
    assert found[2][3] == "0.2500 ± 0.0000"
    assert len(lines(seeds_table(rows, "union", {}))) == 4


def test_simulated_exchanges_as_shares_of_dense() -> None:
    rows = [
        {"recipe": name, "alike": alike, "n": 10, "workers": 2, "seconds": s, "bytes_per_rank": b}
        for alike in (0.0, 1.0)
        for name, s, b in (("dense", 1.0, 4000), ("a | b", 0.5 - alike / 4, 1000))
    ]
    found = lines(simulate_table(rows, "alike", {}))[2:]
    assert [row[1] for row in found] == ["0", "1", "0", "1"]
    assert found[3] == ["`a \\| b`", "1", "10", "2", "250 ms", "1kB", "0.250", "0.2500"]
