"""A pytest plugin: a real ZooKeeper and real brokers for the tests of an application.

pytest loads it in every run of an environment that has Holdfast, so it imports nothing of Holdfast's until a
test uses a fixture. docs/testing.md explains the fixtures.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from holdfast_log.broker.tools.local_cluster import LocalCluster
    from holdfast_log.clients.admin import Admin

QUICK = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings of every broker, unless overridden: with Kafka's defaults, 50 partitions of committed offsets and
3 s before a group's first assignment, each test with a consumer group would wait."""

_NAME_MAX = 200
_LOG_SHOWN = 8_000
"""How many bytes at the end of a broker's log are shown with a failing test."""

_cluster_key = pytest.StashKey["LocalCluster"]()
_sizes_key = pytest.StashKey[list[int]]()


class TopicMaker(Protocol):
    """The value of the fixture `holdfast_create_topic`."""

    def __call__(
        self,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
    ) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    parser.addini("holdfast_brokers", "Number of brokers of the fixture holdfast_cluster.", default="1")
    parser.addini(
        "holdfast_properties",
        "Settings for every broker of the fixture holdfast_cluster, one key=value on each line.",
        type="linelist",
        default=[],
    )


@pytest.fixture(scope="session")
def holdfast_brokers(pytestconfig: pytest.Config) -> int:
    """The number of brokers: the ini option `holdfast_brokers`. Override this fixture for another one."""
    given: str = pytestconfig.getini("holdfast_brokers")
    if not given.isdecimal() or int(given) < 1:
        raise pytest.UsageError(f"holdfast_brokers={given}: it must be a number from 1")
    return int(given)


@pytest.fixture(scope="session")
def holdfast_properties(pytestconfig: pytest.Config) -> dict[str, str]:
    """Settings of the brokers: the ini option `holdfast_properties`. Override this fixture for others."""
    lines: list[str] = pytestconfig.getini("holdfast_properties")
    pairs = [line.partition("=") for line in lines]
    for line, (_, equals, _) in zip(lines, pairs, strict=True):
        if not equals:
            raise pytest.UsageError(f"holdfast_properties: {line!r} is not key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


@pytest.fixture(scope="session")
def holdfast_cluster(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    holdfast_brokers: int,
    holdfast_properties: Mapping[str, str],
) -> Iterator[LocalCluster]:
    """ZooKeeper and brokers on free loopback ports, for all tests of the run, or of a worker of pytest-xdist.

    `brokers` are its processes, which a test may stop, kill, pause and start again, and must leave running.
    Data and logs are in a temporary directory of pytest's.
    """
    from holdfast_log.testing.requirements import require_server

    try:
        require_server("the fixture holdfast_cluster")
    except ImportError as missing:
        pytest.fail(str(missing), pytrace=False)
    from holdfast_log.broker.tools.broker_process import BrokerProcessError
    from holdfast_log.broker.tools.local_cluster import LocalCluster
    from holdfast_log.coordinator.tools.zookeeper_server import ZooKeeperServerError

    cluster = LocalCluster(
        tmp_path_factory.mktemp("holdfast"),
        brokers=holdfast_brokers,
        properties={**QUICK, **holdfast_properties},
    )
    try:
        cluster.start()
    except (BrokerProcessError, ZooKeeperServerError) as error:
        pytest.fail(f"the fixture holdfast_cluster did not start: {error}", pytrace=False)
    pytestconfig.stash[_cluster_key] = cluster
    try:
        yield cluster
    finally:
        del pytestconfig.stash[_cluster_key]
        cluster.stop()


@pytest.fixture(scope="session")
def holdfast_bootstrap(holdfast_cluster: LocalCluster) -> str:
    """The brokers' addresses, as `bootstrap.servers`. Override this fixture to use a cluster that runs."""
    return holdfast_cluster.bootstrap


@pytest.fixture(scope="session")
def holdfast_admin(holdfast_bootstrap: str) -> Iterator[Admin]:
    """An admin client of the cluster."""
    from holdfast_log.clients.admin import Admin

    with Admin({"bootstrap.servers": holdfast_bootstrap}) as admin:
        yield admin


@pytest.fixture
def holdfast_create_topic(request: pytest.FixtureRequest, holdfast_admin: Admin) -> TopicMaker:
    """A function that creates a topic and returns its name, which no other test has, nor another run."""
    from holdfast_log.clients.admin import NewTopic

    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:_NAME_MAX].strip("-.")

    def create(
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
    ) -> str:
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        holdfast_admin.create_topics([NewTopic(name, partitions, replication_factor, configs or {})])
        return name

    return create


@pytest.fixture
def holdfast_topic(holdfast_create_topic: TopicMaker) -> str:
    """The name of a new topic with one partition. The topic stays until the cluster ends."""
    return holdfast_create_topic()


# The brokers' logs ------------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how long the brokers' logs are as a test begins."""
    cluster = _cluster_of(item)
    if cluster is not None:
        item.stash[_sizes_key] = [broker.log_path.stat().st_size for broker in cluster.brokers]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failing test what the brokers logged meanwhile."""
    report = yield
    cluster = _cluster_of(item)
    if report.failed and cluster is not None:
        sizes = item.stash.get(_sizes_key, [0] * len(cluster.brokers))
        for broker, size in zip(cluster.brokers, sizes, strict=True):
            logged = broker.log_path.read_bytes()[size:][-_LOG_SHOWN:].decode(errors="replace")
            report.sections.append((f"log of Holdfast broker {broker.broker_id}", logged))
    return report


def _cluster_of(item: pytest.Item) -> LocalCluster | None:
    """The cluster, if it runs and the test uses it."""
    is_used = "holdfast_cluster" in getattr(item, "fixturenames", ())
    return item.config.stash.get(_cluster_key, None) if is_used else None
