"""Fixtures for all tests, the order of the test run, and Hypothesis settings."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster import cluster, cluster_of_module, shared_cluster
from tests.models.grounds import ground
from tests.zookeeper import zookeeper, zookeeper_process, zookeeper_server

__all__ = [
    "cluster",
    "cluster_of_module",
    "ground",
    "shared_cluster",
    "zookeeper",
    "zookeeper_process",
    "zookeeper_server",
]

# An example must not fail because a busy machine is slow.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# JVMs of Spark live only seconds here: the quick compiler alone takes half of the processor time.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell that starts the tests in the background has them ignore SIGINT, and the programs that they start
# would inherit that. Some tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "tests/faults/test_matrix.py",
    "tests/integration/test_procedures.py",
    "tests/integration/test_upgrade.py",
    "tests/checker/test_planted_bugs.py",
    "tests/sim/test_simulation.py",
    "tests/integration/test_kill.py",
)
"""Files whose tests take most of a minute each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that no worker is left with one of them while the other is idle."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
