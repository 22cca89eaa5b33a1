"""Which rows are drawn together."""

from thinwire.report.panels import panels


def test_dense_has_a_place_in_the_panels_of_every_density() -> None:
    rows = [{"recipe": "dense", "n": 1, "density": None}]
    rows += [{"recipe": "topk", "n": 1, "density": density} for density in (0.1, 0.01)]
    found = panels(rows, ("n", "density"))
    assert [[row["recipe"] for row in panel.rows] for panel in found] == [["dense", "topk"]] * 2
    assert [panel.title("Time") for panel in found] == [
        "Time, 1 elements, density 0.1",
        "Time, 1 elements, density 0.01",
    ]
    assert len(panels(rows[:1], ("n", "density"))) == 1
