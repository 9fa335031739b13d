"""Consumers of different libraries in one group, classic or of KIP-848, while members come and go.

Every record is processed at least once, and none by two members in the same generation. HOLDFAST_CHURNS is
the number of replaced members, over all strategies together; 12 by default.

The members of each library also settle when the broker's answers take longer than their polls.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest
from tests.cluster import BackgroundBroker, Cluster
from tests.compat.churn import OLD_KAFKA_PYTHON, PARTITIONS, Library, churn, mixed_group, percentile
from tests.compat.drivers.membership import KIP_848, POLL_MS
from tests.compat.slow_answers import SlowAnswers
from tests.forked_brokers import ForkedBroker

CHURNS = int(os.environ.get("HOLDFAST_CHURNS", "12"))
MEMBERS = 6

OURS = Library("holdfast", "member_holdfast")
CONFLUENT = Library("confluent-kafka", "member_confluent")
KAFKA_PYTHON_3 = Library("kafka-python-3", "member_kafka_python")
KAFKA_PYTHON_2 = Library("kafka-python-2", "member_kafka_python", OLD_KAFKA_PYTHON)
AIOKAFKA = Library("aiokafka", "member_aio")

STRATEGIES = {
    "range": [CONFLUENT, OURS, KAFKA_PYTHON_3, AIOKAFKA, KAFKA_PYTHON_2],
    "roundrobin": [KAFKA_PYTHON_3, AIOKAFKA, OURS, CONFLUENT, KAFKA_PYTHON_2],
    "sticky": [OURS, AIOKAFKA, KAFKA_PYTHON_3, KAFKA_PYTHON_2],
    "cooperative-sticky": [OURS, CONFLUENT],
    KIP_848: [OURS, CONFLUENT],
}
"""The libraries that implement each strategy."""

# Rather short sessions, because members are killed; shorter ones end while a busy machine starves a member.
# No initial rebalance delay, because the tests measure and repeat rebalances.
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker with `PROPERTIES`."""
    return cluster_of_module.start(1, PROPERTIES)[0]


@pytest.fixture(scope="module")
def slow_address(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker whose answers to Metadata and SyncGroup take longer than a member's poll."""
    port = free_port()
    relay = SlowAnswers(port, (MetadataRequest, SyncGroupRequest), delay_s=3 * POLL_MS / 1000)
    broker = ForkedBroker(
        tmp_path_factory.mktemp("slow-broker"),
        broker_id=1,
        zookeeper_connect=f"{zookeeper_server}/slow-answers",
        port=port,
        properties={**PROPERTIES, "advertised.listeners": f"PLAINTEXT://{relay.address}"},
    )
    broker.start()
    try:
        broker.wait_ready()
        yield relay.address
    finally:
        broker.stop()
        relay.close()


@pytest.mark.timeout(1_200 + CHURNS * 30)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_record_is_missed_while_members_of_all_libraries_come_and_go(
    strategy: str, broker: BackgroundBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    libraries = [library for library in STRATEGIES[strategy] if library.python.exists()]
    topic = f"mixed-{strategy}"
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    count = max(1, CHURNS // len(STRATEGIES))

    with mixed_group(broker.address, topic, strategy, libraries, tmp_path) as group:
        times = churn(group, count, MEMBERS, random.Random(strategy))
        judge, ends = group.judge, group.ends

    assert judge.problems == []
    assert judge.missing(ends) == []
    with capsys.disabled():
        print(
            f"\n{strategy}: {count} of {MEMBERS} members replaced; {sum(ends.values())} records, processed "
            f"{judge.records / sum(ends.values()):.3f} times; rebalance p50 {percentile(times, 0.5):.2f} s, "
            f"p99 {percentile(times, 0.99):.2f} s ({', '.join(map(str, libraries))})",
            file=sys.stderr,
        )


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("library", STRATEGIES["range"], ids=str)
def test_members_settle_when_answers_take_longer_than_a_poll(
    library: Library, slow_address: str, tmp_path: Path
) -> None:
    if not library.python.exists():
        pytest.skip(f"{library} is not installed")
    topic = f"slow-{library}"
    with Admin({"bootstrap.servers": slow_address}) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
        # This makes the broker create __consumer_offsets. A member that had to wait for that topic would get
        # its metadata before it joins.
        admin.describe_groups([topic])

    with mixed_group(slow_address, topic, "range", [library], tmp_path) as group:
        group.come()
        group.settle()
        group.come()
        group.settle()
        group.drain()
        judge, ends = group.judge, group.ends

    assert judge.problems == []
    assert judge.missing(ends) == []
