"""Fixtures that tests of every room share, the order of all tests, and what time may not decide."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster import cluster, cluster_of_module, shared_cluster
from tests.zookeeper import zookeeper, zookeeper_process, zookeeper_server

__all__ = [
    "cluster",
    "cluster_of_module",
    "shared_cluster",
    "zookeeper",
    "zookeeper_process",
    "zookeeper_server",
]

# Whether an example holds is not a matter of how long a busy machine takes for it.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

LONG = ("tests/faults/test_matrix.py", "tests/sim/test_simulation.py", "tests/integration/test_kill.py")
"""Whose tests take most of a minute each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: else one process may end with one of them while the other has nothing left."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
