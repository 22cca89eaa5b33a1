"""Medians with their spread, numbers of threads, and the load of others."""

import torch

from thinwire.bench.timing import LoadMeter, Spread, threads


def test_a_spread_is_the_median_and_what_lies_around_it() -> None:
    spread = Spread.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (spread.median, spread.low, spread.high) == (3.0, 1.0, 5.0)
    assert spread.iqr == 3.0
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 0.0, 2.0)


def test_the_load_of_others_is_never_negative() -> None:
    found = LoadMeter().others(own_seconds=1e9)
    assert found is None or found == 0


def test_threads_are_set_for_a_while() -> None:
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
