"""What the tests of frameworks share."""

from collections.abc import Iterator

import pytest

from support.cluster import Cluster


@pytest.fixture(scope="session")
def frameworks() -> Iterator[Cluster]:
    """Four ranks apart from the others', with time to import frameworks of their own."""
    with Cluster(4, run_s=180, group_s=90) as cluster:
        yield cluster
