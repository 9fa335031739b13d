"""confluent-kafka and Java in groups of KIP-848 (`group.protocol=consumer`): members come and leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from benchmarks.apache_kafka import KRAFT_VERSION
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import BackgroundBroker, Cluster
from tests.compat.apache_kafka import driver_or_skip

PARTITIONS = 6
PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
"""Frequent heartbeats, because the tests wait for rebalances; sessions are long enough for a busy machine."""
SHORT_SESSIONS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
}
"""For the broker of a test that kills a member."""
WAIT_S = 240.0


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start(1, PROPERTIES)[0]


@pytest.fixture
def topic(broker: BackgroundBroker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:60].strip("[]-")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)])
    return str(name)


class Member:
    """A consumer that is polled by the test. It may be told of the errors with the codes `passing`."""

    def __init__(
        self,
        broker: BackgroundBroker,
        group: str,
        topics: list[str],
        passing: Collection[int] = (),
        **settings: Any,
    ) -> None:
        self.read: list[tuple[int, int]] = []
        self._passing = passing
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe(topics)

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.read.append((message.partition(), message.offset()))
        else:
            assert error.code() in self._passing, error

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def have_read_their_own(*members: Member) -> bool:
    """Whether each member has read all ten records of each partition that it has now."""
    return all(
        {(partition, offset) for partition in member.owned for offset in range(10)} <= set(member.read)
        for member in members
    )


def places(*members: Member) -> set[tuple[int, int]]:
    """The records that have been read. The second member may read again what the first read meanwhile."""
    return {place for each in members for place in each.read}


def until(condition: Callable[[], object], *members: Member) -> None:
    """Poll the members until the condition holds."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, [sorted(member.owned) for member in members]
        for member in members:
            member.poll()


def shares(*members: Member) -> list[int]:
    """How many partitions each member has; empty while one has none or two have the same."""
    owned = [member.owned for member in members]
    whole = set().union(*owned)
    return [len(each) for each in owned] if len(whole) == sum(map(len, owned)) == PARTITIONS else []


def produce(broker: BackgroundBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def test_members_share_partitions_as_they_come_and_leave(broker: BackgroundBroker, topic: str) -> None:
    first = Member(broker, topic, [topic])
    until(lambda: shares(first) == [6], first)
    second = Member(broker, topic, [topic])
    until(lambda: shares(first, second) == [3, 3], first, second)
    third = Member(broker, topic, [topic])
    until(lambda: shares(first, second, third) == [2, 2, 2], first, second, third)
    second.consumer.close()
    until(lambda: shares(first, third) == [3, 3], first, third)
    for member in (first, third):
        member.consumer.close()


def test_a_member_continues_at_the_offsets_of_its_group(broker: BackgroundBroker, topic: str) -> None:
    produce(broker, topic, 60)
    first = Member(broker, topic, [topic])
    until(lambda: len(first.read) == 60, first)
    first.consumer.commit(asynchronous=False)
    first.consumer.close()
    produce(broker, topic, 12)
    second = Member(broker, topic, [topic])
    until(lambda: len(second.read) == 12, second)
    assert {offset for _, offset in second.read} == {10, 11}
    second.consumer.close()


_KILLED = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


@contextmanager
def process(broker: BackgroundBroker, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own."""
    command = [sys.executable, "-c", _KILLED, broker.address, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_the_partitions_of_a_killed_member_go_to_the_others(cluster: Cluster) -> None:
    (broker,) = cluster.start(1, PROPERTIES | SHORT_SESSIONS)
    topic = "t"
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    with process(broker, topic) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == str(PARTITIONS):
                break
        other = Member(broker, topic, [topic])
        until(lambda: len(other.owned) == 3, other)
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: len(other.owned) == PARTITIONS, other)
    other.consumer.close()


def test_a_static_member_gets_its_partitions_back(broker: BackgroundBroker, topic: str) -> None:
    first = Member(broker, topic, [topic], group_instance_id="one")
    second = Member(broker, topic, [topic], group_instance_id="two")
    until(lambda: shares(first, second) == [3, 3], first, second)
    had, stays = first.owned, second.owned
    first.consumer.close()
    again = Member(broker, topic, [topic], group_instance_id="one")
    until(lambda: again.owned == had, again, second)
    assert second.owned == stays
    for member in (again, second):
        member.consumer.close()


def test_new_partitions_are_assigned(broker: BackgroundBroker, topic: str) -> None:
    member = Member(broker, topic, [topic], topic_metadata_refresh_interval_ms=500)
    until(lambda: len(member.owned) == PARTITIONS, member)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_partitions({topic: 8})
    until(lambda: len(member.owned) == 8, member)
    member.consumer.close()


def test_a_group_survives_its_coordinator(cluster: Cluster) -> None:
    (broker,) = cluster.start(1, PROPERTIES)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS)])
    produce(broker, "t", 60)
    # A broker that starts on a busy machine answers after ten seconds, also if it has learnt of no topic yet.
    passing = [KafkaError.UNKNOWN_TOPIC_OR_PART]
    members = [Member(broker, "g", ["t"], passing) for _ in range(2)]
    # The first may have read everything before the second joins, which has nothing to commit until it reads.
    until(lambda: shares(*members) == [3, 3] and have_read_their_own(*members), *members)
    assert len(places(*members)) == 60
    for member in members:
        member.consumer.commit(asynchronous=False)
    had = [member.owned for member in members]
    broker.kill()
    broker.start()
    broker.wait_ready()
    produce(broker, "t", 60)
    until(lambda: len(places(*members)) == 120, *members)
    assert [member.owned for member in members] == had
    for member in members:
        member.consumer.close()


def test_administrators_see_the_group(broker: BackgroundBroker, topic: str) -> None:
    member = Member(broker, topic, [topic], group_remote_assignor="range")
    until(lambda: len(member.owned) == PARTITIONS, member)
    admin = AdminClient({"bootstrap.servers": broker.address})
    described = admin.describe_consumer_groups([topic])[topic].result()
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (seen,) = described.members
    assert seen.assignment.topic_partitions == [TopicPartition(topic, n) for n in range(PARTITIONS)]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
    assert topic in {group.group_id for group in listed}
    member.consumer.close()
    until(lambda: admin.describe_consumer_groups([topic])[topic].result().state == ConsumerGroupState.EMPTY)
    admin.delete_consumer_groups([topic])[topic].result()


def test_a_group_without_members_changes_its_protocol(broker: BackgroundBroker, topic: str) -> None:
    produce(broker, topic, 6)
    for number, protocol in enumerate(("classic", "consumer", "classic")):
        member = Member(broker, topic, [topic], group_protocol=protocol)
        until(lambda member=member: len(member.read) == 6, member)
        assert {offset for _, offset in member.read} == {number}
        member.consumer.commit(asynchronous=False)
        member.consumer.close()
        produce(broker, topic, 6)


def test_javas_consumers_share_and_take_over(broker: BackgroundBroker, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed: brokers match no regular expressions")
    command = driver_or_skip(tmp_path, "ConsumerGroup", KRAFT_VERSION)
    produce(broker, topic, 60)
    done = subprocess.run(
        [*command, broker.address, topic, topic, f"{topic}.*"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines() == ["shared 3 3", "took over 6", "matched 6", "read 60"]
