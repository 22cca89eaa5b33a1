"""What all tests share."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from support.cluster import Cluster
from support.implementations import HAS_GPU
from support.report import report  # noqa: F401, a fixture
from thinwire.kernels._compile_once import compile_once

# Triton decides when it is imported, and PyTorch's compiler imports it: before any test does.
if not HAS_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")

# "quick" draws the same examples every time and reports what it drew; "deep", by
# --hypothesis-profile=deep, looks for new ones and makes those that fail small. Neither looks
# for the lines that explain a failure: that takes many more runs of the whole cluster.
_common = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}
_quick = [Phase.explicit, Phase.generate]
_deep = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
settings.register_profile("quick", max_examples=20, derandomize=True, phases=_quick, **_common)
settings.register_profile("deep", max_examples=200, phases=_deep, **_common)
settings.load_profile("quick")

# Workers of pytest-xdist share a cache of compiled kernels, with each other and with their ranks.
compile_once()

# Workers of pytest-xdist share the cores; each with threads for all of them would only wait.
torch.set_num_threads(
    max(1, torch.get_num_threads() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Eight ranks; one cluster serves all tests of a session."""
    with Cluster(8) as cluster:
        yield cluster
