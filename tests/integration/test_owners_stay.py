"""Owners keep their resources when brokers fail, and no other owner gets one meanwhile."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Self

from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.errors import UndeliveredError
from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.groups.coordinator import coordinator_in, find_coordinator_request
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration import clients

WAIT_MS = 120_000
SESSION_MS = 60_000
"""Long enough that no live owner expires on a slow machine."""
JOURNAL, LENT = "journal", "lent"
WAITING = ProducerAccessMode.WAIT_FOR_EXCLUSIVE


class Owners:
    """A writer, a reader, and a lease of a name and a partition. Another writer and another lease are queued,
    and a stranger keeps trying to write to the writer's partition."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self.events: dict[str, list[OwnershipEvent]] = {"writer": [], "reader": [], "lease": []}
        self.place = TopicPartition(JOURNAL, partition)
        self.sent: list[SendResponse] = []
        self.read: list[bytes] = []
        self.tried = 0
        self.intruded: list[SendResponse] = []
        self._given: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._is_over = threading.Event()
        self._stranger = threading.Thread(target=self._intrude)
        self._resources: list[OwnedResource] = ["leader", TopicPartition(LENT, partition)]
        self.writer = self._producer(ProducerAccessMode.EXCLUSIVE, on_ownership=self.events["writer"].append)
        self.lease = self._lease(on_event=self.events["lease"].append)
        self.reader = self._reader(on_ownership=self.events["reader"].append)

    def _producer(self, mode: ProducerAccessMode, **options: Any) -> ExclusiveProducer:
        partitions = [self.place.partition]
        return ExclusiveProducer(
            self._given, JOURNAL, mode, partitions=partitions, session_timeout_ms=SESSION_MS, **options
        )

    def _lease(self, **options: Any) -> Lease:
        return Lease(self._given, "app", self._resources, session_timeout_ms=SESSION_MS, **options)

    def _reader(self, **options: Any) -> ExclusiveConsumer:
        given = {**self._given, "auto.offset.reset": "earliest"}
        return ExclusiveConsumer(given, "app", [self.place], session_timeout_ms=SESSION_MS, **options)

    def __enter__(self) -> Self:
        self.lease.claim(WAIT_MS)
        self.write(50)
        self.read_all()
        self.next_writer = self._producer(WAITING, is_waiting=False)
        self.next_lease = self._lease(wait_ms=FOR_EVER)
        self.next_lease.poll(WAIT_MS)
        self._stranger.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_intrusion()
        for owner in (self.reader, self.lease, self.next_lease):
            owner.close()
        for producer in (self.writer, self.next_writer):
            producer.close(0)

    def _intrude(self) -> None:
        with Producer({**self._given, "linger.ms": 0}) as producer:
            while not self._is_over.wait(0.05):
                response = producer.send(Message(JOURNAL, value="stranger", partition=self.place.partition))
                with suppress(UndeliveredError):
                    producer.flush()
                self.tried += 1
                if response.error is None:
                    self.intruded.append(response)

    def write(self, count: int) -> None:
        """Send `count` messages without waiting for their responses."""
        for _ in range(count):
            self.sent.append(self.writer.send(Message(JOURNAL, value=str(len(self.sent)))))

    def read_all(self) -> None:
        """Read until all messages sent so far have been read."""
        while len(self.read) < len(self.sent):
            self.read += [record.value for record in self.reader.poll(WAIT_MS)]

    def assert_all_resumed(self) -> None:
        """Assert that writer, reader and lease have resumed with their generations, and nobody else has
        written."""
        count = len(self.sent)
        assert [response.result(WAIT_MS).offset for response in self.sent] == list(range(count))
        self.read_all()
        assert self.read == [str(number).encode() for number in range(count)]
        self.lease.claim(WAIT_MS)
        assert [self.lease.generation(resource) for resource in self._resources] == [1, 1]
        assert (self.writer.epoch(self.place.partition), self.reader.generation(self.place)) == (1, 1)
        for who, events in self.events.items():
            assert any(event.is_resumed for event in events), f"{who} was not resumed: {events}"
            assert ClaimState.LOST not in [event.state for event in events], who
        assert not self.next_writer.has_access and not self.next_lease.is_held
        tried = self.tried
        while self.tried < tried + 2:
            assert self._stranger.is_alive()
            self._is_over.wait(0.01)
        assert self.intruded == []

    def _end_intrusion(self) -> None:
        self._is_over.set()
        self._stranger.join()

    def assert_the_next_follow(self) -> None:
        """Release the writer and the lease, and assert that the queued ones are granted generation 2. The
        stranger is stopped first: it may write while the partition has no owner."""
        self._end_intrusion()
        self.writer.close()
        self.next_writer.claim(WAIT_MS)
        partition = self.place.partition
        assert self.next_writer.epoch(partition) == 2
        assert self.next_writer.fence_offset(partition) == len(self.sent)
        self.lease.close()
        self.next_lease.claim(WAIT_MS)
        assert [self.next_lease.generation(resource) for resource in self._resources] == [2, 2]


def coordinator_and_a_partition_it_leads(bootstrap: str) -> tuple[int, int]:
    """The id of the broker that coordinates the owners' group, and a partition that it leads in both
    topics."""
    with Connection(bootstrap) as connection:
        while True:
            try:
                node = coordinator_in(connection.ask(ANY_NODE, find_coordinator_request("app"))).node
                break
            except BrokerError as error:
                assert error.retriable
        topics = [MetadataRequestTopic(name=JOURNAL), MetadataRequestTopic(name=LENT)]
        while True:  # This broker may learn of the topics after the one that has created them.
            described = connection.ask(node, MetadataRequest(topics=topics)).topics
            led = [
                {row.partition_index for row in topic.partitions if row.leader_id == node}
                for topic in described
            ]
            if both := led[0] & led[1]:
                return node, min(both)


def test_owners_resume_at_the_next_leader_after_a_kill(cluster: Cluster) -> None:
    """ "Guaranteed single-writer - There should be 1 single writer in any combination of errors" (PIP-68).
    One broker decides about writer, reader and lease, and is killed while they write."""
    cluster.start(3, {"offsets.topic.replication.factor": "3"})
    for topic in (JOURNAL, LENT):
        clients.create_topic(cluster.bootstrap, topic, 3, 3, {"min.insync.replicas": "2"})
    node, partition = coordinator_and_a_partition_it_leads(cluster.bootstrap)
    with Owners(cluster.bootstrap, partition) as owners:
        owners.write(200)

        cluster.lose(cluster.brokers[node - 1])

        owners.write(200)
        owners.assert_all_resumed()
        owners.assert_the_next_follow()


def test_owners_resume_after_the_only_broker_restarts(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    for topic in (JOURNAL, LENT):
        clients.create_topic(cluster.bootstrap, topic)
    with Owners(cluster.bootstrap, 0) as owners:
        owners.write(200)
        broker.stop()
        owners.write(200)
        cluster.make_whole()
        owners.assert_all_resumed()
        owners.assert_the_next_follow()
