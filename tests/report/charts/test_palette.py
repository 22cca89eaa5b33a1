"""Looks of series."""

from thinwire.report.charts.palette import looks


def test_looks_differ_and_a_baseline_stands_out() -> None:
    look = looks([f"recipe{i}" for i in range(35)] + ["dense", "torch-dense"])
    assert len({(each.colour, each.dash) for each in look.values()}) == 37
    assert look["dense"].width > look["recipe0"].width
    assert looks(["dense"])["dense"].dash == ()
