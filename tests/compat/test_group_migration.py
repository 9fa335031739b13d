"""confluent-kafka, kafka-python, Java and ours in groups that change their protocol and back (KIP-848).

Members of the classic protocol make way for members of `group.protocol=consumer`, and these for classic ones
again. Each commits what it has read as it gives a partition up, so every record is read once.
"""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import ConsumerRebalanceListener, KafkaConsumer

from benchmarks.apache_kafka import KRAFT_VERSION
from holdfast_log import Consumer, RebalanceListener
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import BackgroundBroker, Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.compat.drivers.kafka_python_topics import PATIENT, wait_for_partitions
from tests.compat.drivers.member_confluent import generation_of

PARTITIONS = 6
PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
"""Frequent heartbeats, because the tests wait for rebalances; sessions are long enough for a busy machine."""
CLASSIC_SESSION_MS = 45_000
WAIT_S = 240.0
CLASSIC, CONSUMER = ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start(1, PROPERTIES)[0]


class Reader(ABC):
    """A member that the test polls. It commits what it has read of a partition as it gives that up."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []
        self.losses = 0
        self.refused: list[str] = []
        """Why commits failed."""

    @abstractmethod
    def poll(self) -> None: ...

    @property
    @abstractmethod
    def owned(self) -> set[int]: ...

    @property
    @abstractmethod
    def generation(self) -> int:
        """The generation, or epoch, of which the member has its partitions; negative while it joins."""

    @abstractmethod
    def close(self) -> None: ...

    def next_offsets(self, partitions: Any) -> dict[int, int]:
        """Where reading goes on, for those of the partitions of which it has read something."""
        last = dict(sorted(self.read))
        return {number: last[number] + 1 for number in partitions if number in last}


def place(message: Any) -> tuple[int, int]:
    """Partition and offset of a message of confluent-kafka."""
    return message.partition(), message.offset()


class ConfluentReader(Reader):
    def __init__(self, address: str, topic: str, **settings: str) -> None:
        super().__init__()
        self._topic = topic
        self._is_closing = False
        classic = {"session.timeout.ms": CLASSIC_SESSION_MS, "heartbeat.interval.ms": 300}
        self._consumer = ConfluentConsumer(
            {
                "bootstrap.servers": address,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({} if "group_protocol" in settings else classic),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._revoked, on_lost=self._lost)

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(place(message))

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    @property
    def generation(self) -> int:
        return generation_of(self._consumer)

    def close(self) -> None:
        # librdkafka leaves before it calls `on_revoke`, if it is closed while the group rebalances.
        self._commit(self.owned)
        self._is_closing = True
        self._consumer.close()

    def _revoked(self, _: object, partitions: list[ConfluentPartition]) -> None:
        if not self._is_closing:
            self._commit(each.partition for each in partitions)

    def _commit(self, partitions: Iterable[int]) -> None:
        ends = self.next_offsets(partitions)
        if not ends:
            return
        offsets = [ConfluentPartition(self._topic, number, end) for number, end in ends.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # What leaves a callback is no exception of Python's, and would end the process of tests.
            self.refused.append(str(error))

    def _lost(self, _: object, partitions: object) -> None:
        self.losses += 1


class KafkaPythonReader(Reader, ConsumerRebalanceListener):  # type: ignore[misc]
    """It commits as it joins again and as it leaves: its listeners cannot."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self._consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=topic,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=3_600_000,
            session_timeout_ms=CLASSIC_SESSION_MS,
            heartbeat_interval_ms=300,
            **PATIENT,
        )
        self._consumer.subscribe([topic], listener=self)
        end_s = time.monotonic() + WAIT_S
        wait_for_partitions(self._consumer, topic, is_wanted=lambda: time.monotonic() < end_s)

    def poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=20).values():
            self.read += [(record.partition, record.offset) for record in records]

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    @property
    def generation(self) -> int:
        found = self._consumer._coordinator.generation_if_stable()
        return -1 if found is None else int(found.generation_id)

    def close(self) -> None:
        self._consumer.close()

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: object) -> None:
        pass

    def on_partitions_lost(self, lost: object) -> None:
        self.losses += 1


class HoldfastReader(Reader, RebalanceListener):
    def __init__(self, address: str, topic: str, strategy: str) -> None:
        super().__init__()
        self._topic = topic
        self._owned: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": CLASSIC_SESSION_MS,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": strategy,
            },
            rebalance_listener=self,
        )
        self._consumer.add_topic(topic)

    def poll(self) -> None:
        self.read += [(record.partition, record.offset) for record in self._consumer.poll(20)]

    @property
    def owned(self) -> set[int]:
        return self._owned

    @property
    def generation(self) -> int:
        return self._consumer.group_identity().generation

    def close(self) -> None:
        self._consumer.commit()
        self._consumer.close()

    def on_partitions_revoked(self, partitions: Any) -> None:
        for each in partitions:
            self._consumer.commit(self._topic, each.partition)
        self._owned.difference_update(each.partition for each in partitions)

    def on_partitions_assigned(self, partitions: Any) -> None:
        self._owned.update(each.partition for each in partitions)

    def on_partitions_lost(self, partitions: Any) -> None:
        self.losses += 1
        self._owned.difference_update(each.partition for each in partitions)


CLASSIC_LIBRARIES: dict[str, Callable[[str, str], Reader]] = {
    "confluent-range": lambda address, topic: ConfluentReader(
        address, topic, partition_assignment_strategy="range"
    ),
    "confluent-cooperative": lambda address, topic: ConfluentReader(
        address, topic, partition_assignment_strategy="cooperative-sticky"
    ),
    "kafka-python": KafkaPythonReader,
    "holdfast-range": lambda address, topic: HoldfastReader(address, topic, "range"),
    "holdfast-cooperative": lambda address, topic: HoldfastReader(address, topic, "cooperative-sticky"),
}


class Group:
    """A topic that is written all the time, and the members of the group that reads it."""

    def __init__(self, broker: BackgroundBroker, topic: str) -> None:
        with Admin({"bootstrap.servers": broker.address}) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS)])
        self.topic = topic
        self.address = broker.address
        self.members: list[Reader] = []
        self.closed: list[Reader] = []
        self._producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
        self._turn = 0
        self.written: list[tuple[int, int]] = []

    def join(self, member: Reader) -> None:
        """Add a member, and wait until all share the topic."""
        self.members.append(member)
        self.until_shared()

    def close(self, member: Reader) -> None:
        member.close()
        self.members.remove(member)
        self.closed.append(member)

    def until_shared(self) -> None:
        """All have partitions in one generation, and none is about to join again: a commit between a client's
        JoinGroup and the answer names the generation of before, and is refused. The coordinator says Stable
        as soon as the leader has synced: another member may be that late, and keeps its partitions if its
        strategy is cooperative."""
        self.until(lambda: self._is_shared() and self._is_stable())

    def until_all_is_read(self) -> None:
        assert self._producer.flush(WAIT_S) == 0
        self.until(lambda: set(self.written) == set(self.read), writes=False)

    @property
    def read(self) -> list[tuple[int, int]]:
        return [each for member in (*self.members, *self.closed) for each in member.read]

    @property
    def type(self) -> ConsumerGroupType:
        return ConsumerGroupType(self._described().type)

    def _is_stable(self) -> bool:
        try:
            return bool(self._described().state is ConsumerGroupState.STABLE)
        except KafkaException:  # A coordinator that was restarted loads its groups.
            return False

    def _described(self) -> Any:
        # A new client each time: the broker may have been restarted since an earlier one connected.
        admin = AdminClient({"bootstrap.servers": self.address})
        return admin.describe_consumer_groups([self.topic])[self.topic].result()

    def until(self, condition: Callable[[], bool], *, writes: bool = True) -> None:
        """Write, and poll the members, until the condition holds."""
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s, [sorted(member.owned) for member in self.members]
            if writes:
                self._write()
            for member in self.members:
                member.poll()

    def _write(self) -> None:
        self._turn += 1
        self._producer.produce(
            self.topic, str(self._turn), partition=self._turn % PARTITIONS, on_delivery=self._written
        )
        self._producer.poll(0)

    def _written(self, error: object, message: Any) -> None:
        assert error is None, error
        self.written.append(place(message))

    def _is_shared(self) -> bool:
        owned = [member.owned for member in self.members]
        generations = {member.generation for member in self.members}
        return (
            all(owned)
            and len(generations) == 1
            and min(generations) >= 0
            and set().union(*owned) == set(range(PARTITIONS))
            and sum(map(len, owned)) == PARTITIONS
        )


@pytest.fixture
def group(broker: BackgroundBroker, request: pytest.FixtureRequest) -> Iterator[Group]:
    name = request.node.name.replace("_", "-")[-60:].strip("[]-").replace("[", "-")
    group = Group(broker, name)
    yield group
    for member in list(group.members):
        group.close(member)


def new_reader(group: Group) -> Reader:
    return ConfluentReader(group.address, group.topic, group_protocol="consumer")


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("library", CLASSIC_LIBRARIES)
def test_every_record_is_read_once_while_a_group_changes_its_protocol_and_back(
    group: Group, library: str
) -> None:
    def classic() -> Reader:
        return CLASSIC_LIBRARIES[library](group.address, group.topic)

    group.join(classic())
    group.join(classic())
    assert group.type is CLASSIC
    group.join(new_reader(group))
    assert group.type is CONSUMER
    group.join(new_reader(group))
    for _ in range(2):
        group.close(group.members[0])
        group.until_shared()
    group.until_all_is_read()
    group.join(classic())
    assert group.type is CONSUMER
    group.join(classic())
    for _ in range(2):
        group.close(group.members[0])
        group.until_shared()
    assert group.type is CLASSIC
    group.until_all_is_read()
    assert [member.losses for member in (*group.members, *group.closed)] == [0] * 6
    assert [member.refused for member in (*group.members, *group.closed)] == [[]] * 6
    assert Counter(group.read) == Counter(group.written)


@pytest.mark.timeout(1_200)
def test_a_coordinator_that_is_killed_in_the_middle_loses_nothing(cluster: Cluster) -> None:
    """Members that cannot commit as they give a partition up may let others read records again: none is
    skipped."""
    (broker,) = cluster.start(1, PROPERTIES)
    group = Group(broker, "t")
    classic = []
    for _ in range(2):
        # librdkafka joins before it is polled, and holds the group up until then.
        classic.append(CLASSIC_LIBRARIES["confluent-range"](group.address, group.topic))
        group.join(classic[-1])
    new = new_reader(group)
    group.members.append(new)
    group.until(lambda: group.type is CONSUMER)
    restart(broker)
    group.until_shared()
    group.until_all_is_read()
    assert group.type is CONSUMER
    group.close(new)
    restart(broker)
    group.until_shared()
    group.until_all_is_read()
    assert group.type is CLASSIC
    for member in classic:
        group.close(member)


def restart(broker: BackgroundBroker) -> None:
    broker.kill()
    broker.start()
    broker.wait_ready()


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("strategy", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_javas_consumers_change_their_protocol(
    broker: BackgroundBroker, tmp_path: Path, strategy: str
) -> None:
    command = driver_or_skip(tmp_path, "GroupMigration", KRAFT_VERSION)
    group = Group(broker, f"java-{strategy}")
    done = subprocess.run(
        [*command, broker.address, group.topic, group.topic, strategy],
        capture_output=True,
        text=True,
        timeout=1_000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[:-1] == ["classic 2", "mixed 4", "consumer 2", "mixed 4", "classic 2"]
    assert lines[-1].startswith("read once ")
    assert group.type is CLASSIC
