"""Real ranks over NCCL on one GPU, two and four of them; see `support.nccl`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.nccl import gpu_cluster, why_not

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    if reason is None:
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def gpu() -> Iterator[Cluster]:
    """Four ranks; one cluster serves all tests of a session, and starts anew after a death."""
    with gpu_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module", params=[2, 4])
def size(request: pytest.FixtureRequest) -> int:
    """Of a run. Pytest orders tests by it, so that ranks keep their group."""
    return int(request.param)
