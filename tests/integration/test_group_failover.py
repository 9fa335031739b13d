"""Group coordinators are killed with kill -9 during commits: no acknowledged commit is lost or reverted.

HOLDFAST_GROUP_KILLS is the number of kills; the full campaign has 30.
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest, FoundCoordinator
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import create_topic
from tests.integration.raw_socket import RawSocket

KILLS = int(os.environ.get("HOLDFAST_GROUP_KILLS", "2"))
TOPIC = "read"
GROUPS = ("raw-1", "raw-2", "raw-3")
PATIENCE_S = 120.0
PAUSE_S = 0.02
PROPERTIES = {
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "offsets.commit.timeout.ms": "5000",
}


class Committer(ABC):
    """Commits 1, 2, 3 and so on for one group, retrying when brokers fail, and records the outcomes."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.tried = 0
        self.acknowledged = 0
        self.acknowledgements = 0
        self.wrong: list[str] = []
        self._is_over = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop committing. A second call has no effect."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.group} did not stop within {PATIENCE_S} s"

    def wait_for_more(self, count: int) -> None:
        """Return once `count` more commits have been acknowledged."""
        with self._progress:
            wanted = self.acknowledgements + count
            assert self._progress.wait_for(lambda: self.acknowledgements >= wanted, PATIENCE_S), (
                f"{self.group}: {self.acknowledgements} of {wanted} commits were acknowledged"
            )

    def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(OSError, KafkaException):
                self._commit_on()
            time.sleep(PAUSE_S)

    @abstractmethod
    def _commit_on(self) -> None:
        """Commit one number after the other until a commit fails. Raises OSError, KafkaException."""

    def _next(self) -> int:
        self.tried += 1
        return self.tried

    def _acknowledged(self, number: int) -> None:
        self.acknowledged = number
        with self._progress:
            self.acknowledgements += 1
            self._progress.notify_all()

    def check(self, found: int) -> None:
        """Compare the offset that the coordinator returns with the commits tried and acknowledged."""
        if not self.acknowledged <= found <= self.tried:
            self.wrong.append(
                f"{self.group}: {found}, but {self.acknowledged} was acknowledged and {self.tried} tried"
            )


class RawCommitter(Committer):
    """Commits over a plain socket, and checks every fifth commit."""

    def __init__(self, group: str, brokers: list[BackgroundBroker]) -> None:
        super().__init__(group)
        self._brokers = brokers

    def _commit_on(self) -> None:
        coordinator = find_coordinator(self._brokers, self.group)
        if coordinator is None:
            return
        with RawSocket(coordinator.port) as client:
            while not self._is_over.is_set():
                number = self._next()
                if commit(client, self.group, number) is not ErrorCode.NONE:
                    return
                self._acknowledged(number)
                if number % 5 == 0:
                    found = committed(client, self.group)
                    if found is None:
                        return
                    self.check(found)


class StockCommitter(Committer):
    """Commits with librdkafka, which finds the next coordinator itself."""

    def __init__(self, group: str, bootstrap: str) -> None:
        super().__init__(group)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def _commit_on(self) -> None:
        while not self._is_over.is_set():
            number = self._next()
            self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, number)], asynchronous=False)
            self._acknowledged(number)
            if number % 5 == 0:
                (found,) = self._consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)
                self.check(found.offset)

    def stop(self) -> None:
        super().stop()
        self._consumer.close()


def find_coordinator(brokers: list[BackgroundBroker], group: str) -> FoundCoordinator | None:
    """The group's coordinator, as the first broker that knows one returns it; None if no broker does."""
    for broker in brokers:
        with suppress(OSError), RawSocket(broker.port) as client:
            answer = client.ask(FindCoordinatorRequest(coordinator_keys=[group]))
            if answer is not None and answer.coordinators[0].error_code == ErrorCode.NONE:
                return answer.coordinators[0]
    return None


def wait_for_coordinator(brokers: list[BackgroundBroker], group: str) -> FoundCoordinator:
    deadline = time.monotonic() + PATIENCE_S
    while (found := find_coordinator(brokers, group)) is None:
        assert time.monotonic() < deadline, f"{group} has no coordinator"
        time.sleep(PAUSE_S)
    return found


def commit(client: RawSocket, group: str, offset: int) -> ErrorCode | None:
    """Commit an offset. Returns the error code; None if the broker closed the connection."""
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])
    answer = client.ask(OffsetCommitRequest(group_id=group, member_id="", topics=[topic]))
    return None if answer is None else ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(client: RawSocket, group: str) -> int | None:
    """The committed offset; None if the broker returns none."""
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=topics)
    answer = client.ask(OffsetFetchRequest(groups=[wanted]))
    if answer is None or answer.groups[0].error_code != ErrorCode.NONE:
        return None
    return answer.groups[0].topics[0].partitions[0].committed_offset


def committed_in_the_end(brokers: list[BackgroundBroker], group: str) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        coordinator = find_coordinator(brokers, group)
        if coordinator is not None:
            with suppress(OSError), RawSocket(coordinator.port) as client:
                found = committed(client, group)
                if found is not None:
                    return found
        time.sleep(PAUSE_S)
    raise AssertionError(f"no broker has returned the committed offset of group {group}")


@pytest.fixture
def committers(cluster: Cluster) -> Iterator[list[Committer]]:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, TOPIC, partitions=1, replicas=1)
    committers: list[Committer] = [RawCommitter(group, cluster.brokers) for group in GROUPS]
    committers.append(StockCommitter("stock", cluster.bootstrap))
    for committer in committers:
        committer.start()
    yield committers
    for committer in committers:
        committer.stop()


def test_no_acknowledged_commit_is_lost_or_reverted_when_coordinators_are_killed(
    cluster: Cluster, committers: list[Committer]
) -> None:
    rng = random.Random(4)
    for _ in range(KILLS):
        for committer in committers:
            committer.wait_for_more(rng.randint(10, 40))
        group = rng.choice(committers).group
        coordinator = wait_for_coordinator(cluster.brokers, group)
        time.sleep(rng.random() * 0.02)  # so that the kill hits any moment of a commit
        killed = cluster.brokers[coordinator.node_id - 1]
        cluster.lose(killed)
        # The other brokers must take over.
        for committer in committers:
            committer.wait_for_more(5)
        killed.start()
        killed.wait_ready(3)
    for committer in committers:
        committer.wait_for_more(10)
    for committer in committers:
        committer.stop()

    for committer in committers:
        committer.check(committed_in_the_end(cluster.brokers, committer.group))
        assert committer.wrong == []
