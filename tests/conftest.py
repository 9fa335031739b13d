"""Fixtures for all tests, the order of the test run, and Hypothesis settings."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster import cluster, cluster_of_module, shared_cluster
from tests.models.grounds import ground
from tests.order import ordered
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

# JVMs of Spark and Maven live only seconds here: the quick compiler alone takes half of the processor time.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "MAVEN_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell that starts the tests in the background has them ignore SIGINT, and the programs that they start
# would inherit that. Some tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_records_of_earlier_tests(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Leave out what threads log of clients that an earlier test has left: while their brokers are gone, they
    warn again and again."""
    earlier = {each for each in threading.enumerate() if each.name.startswith("holdfast")}

    def is_own(record: logging.LogRecord) -> bool:
        return threading.current_thread() not in earlier

    caplog.handler.addFilter(is_own)
    yield
    caplog.handler.removeFilter(is_own)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Share the tests out to the processes that run them."""
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        items[:] = ordered(items, lambda item: item.nodeid.partition("::")[0], processes)


def pytest_collection() -> None:
    """Collect no garbage while modules are imported and thousands of tests are made: nearly all stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what stays: modules and thousands of tests. Many tests collect."""
    gc.enable()
    gc.collect()
    gc.freeze()
