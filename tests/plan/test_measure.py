"""What ranks measure together is the same on all of them."""

import os
from pathlib import Path

from thinwire.cost.calibration import Calibration, say_nothing
from thinwire.plan.local import pipelines
from thinwire.plan.measure import measure


def measured_by(group, rank, size, folder):
    os.environ["XDG_CACHE_HOME"] = folder
    case = {
        "recipes": ["dense"],
        "density": 0.01,
        "node_size": 1,
        "refresh": False,
        "device": "cpu",
    }
    return measure(case, rank, say_nothing)["calibration"]


def test_ranks_measure_the_same_for_the_doctor(cluster, tmp_path: Path) -> None:
    first, second = cluster.run(measured_by, 2, str(tmp_path))
    assert first == second
    found = Calibration.from_dict(first)
    assert found.network.link.alpha > 0
    assert all(found.costs.of(recipe) for recipe in pipelines().values())  # local steps cost work
