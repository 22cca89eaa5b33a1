"""The demo's table: what it says of several seeds, and about noise."""

from thinwire.demo import table
from thinwire.results.file import Row


def last_rows(losses: dict[str, list[float | None]], measure: str = "held_out_loss") -> list[Row]:
    return [
        {
            "recipe": recipe,
            "model": "text",
            "seed": seed,
            "step": 10,
            "loss": loss,
            "seconds": 1.0,
            "bytes_sent_per_rank": 2000 * (seed + 1),
            measure: loss,
        }
        for recipe, runs in losses.items()
        for seed, loss in enumerate(runs)
    ]


def cells(rows: list[Row], recipe: str) -> tuple[str, ...]:
    (summaries,) = table.summarise(rows).values()
    (found,) = (row for row in table.lines(summaries, "dense") if row[0] == recipe)
    return found


def test_one_seed_has_no_spread() -> None:
    rows = last_rows({"dense": [1.0], "topk": [1.1]})
    assert cells(rows, "dense")[1:4] == ("1.000", "", "0.2")
    assert cells(rows, "topk")[1:3] == ("1.100", "+0.100")


def test_seeds_show_mean_and_deviation_and_the_paired_difference_with_its_error() -> None:
    rows = last_rows({"dense": [1.0, 2.0], "topk": [1.1, 2.3]})
    assert cells(rows, "dense")[1:4] == ("1.500 ± 0.707", "", "0.3")  # KB: the mean of 0.2, 0.4
    # Seed by seed +0.1 and +0.3: the deviation between seeds is not in the difference's error.
    assert cells(rows, "topk")[1:3] == ("1.700 ± 0.849", "+0.200 ± 0.100")


def test_accuracies_are_shown_in_points() -> None:
    rows = last_rows({"dense": [0.9, 1.0], "topk": [0.88, 1.0]}, "accuracy")
    assert cells(rows, "topk")[1:3] == ("94.0% ± 8.5%", "-1.0 ± 1.0 pts")


def test_only_seeds_that_both_have_are_compared() -> None:
    rows = last_rows({"dense": [1.0, 2.0, 3.0], "topk": [1.1]})  # the run was broken off
    assert cells(rows, "topk")[1:3] == ("1.100", "+0.100")


def test_a_seed_that_diverged_is_named() -> None:
    rows = last_rows({"dense": [1.0, 2.0], "topk": [1.1, None], "dgc": [None, None]})
    assert cells(rows, "topk")[1:3] == ("1.100, 1 of 2 diverged", "")
    assert cells(rows, "dgc")[1:3] == ("diverged", "")
