"""A cluster in memory, on a clock of its own, for clients under test: no thread, no socket, no waiting.

`FakeCluster` is a `Network`. Its brokers speak the real protocol, byte for byte, and keep real batches. The
broker's own `ProducerStates`, shards of groups and transactions, and ownership table decide what they
answer. A test sets in advance which requests of each broker fail.
"""

from __future__ import annotations

import socket
import uuid
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from holdfast_log.clients.connection.network import Channel
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast_log.testing.fakes.fake_broker import FakeBroker, FakeChannel
from holdfast_log.testing.fakes.fake_groups import FakeGroups
from holdfast_log.testing.fakes.fake_ownership import FakeOwnership
from holdfast_log.testing.fakes.fake_partition import FakePartition
from holdfast_log.testing.fakes.fake_readers import FakeReaders
from holdfast_log.testing.fakes.fake_transactions import FakeTransactions
from holdfast_log.testing.fakes.for_users import UserInterface

GROUP_CONFIG = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=100)


class FakeCluster(UserInterface):
    """Brokers in memory for unit tests: no sockets, no threads, no waiting, the same outcome every time.

    `brokers` is how many there are, numbered from 1; `group_config` has the settings of the group
    coordinator; with `transaction_version` 2 producers get a new epoch with each transaction. `producer`,
    `consumer` and the other methods of `UserInterface` make real clients on it, tell which requests fail, and
    let time pass. Time passes only while a client waits, and in `advance`.

    Use a cluster and its clients in one thread. What is not in `UserInterface` may change between versions.
    docs/testing.md has examples.
    """

    def __init__(
        self, brokers: int = 1, group_config: GroupSettings = GROUP_CONFIG, transaction_version: int = 1
    ) -> None:
        self.brokers = {node: FakeBroker(self, node) for node in range(1, brokers + 1)}
        for broker in self.brokers.values():
            broker.use_transactions(transaction_version)
        self.topics: dict[str, list[FakePartition]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.producer_id = 100
        self.controller_id = 1
        self.time_ms = 0
        self.faults: deque[tuple[type[Request[Any]], str | ErrorCode]] = deque()
        """As those of a broker, for whichever broker gets the request."""
        self.readers = FakeReaders()
        self.groups = FakeGroups(self, group_config)
        self.transactions = FakeTransactions(self)
        self.ownership = FakeOwnership(self)
        self._events: list[tuple[int, Callable[[], object]]] = []
        self._first_network = FakeNetwork(self)

    def network(self) -> FakeNetwork:
        """A network for one more client."""
        return FakeNetwork(self)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"broker-{node}:9092" for node in self.brokers)

    def add_topic(self, name: str, partitions: int = 1) -> list[FakePartition]:
        """Add a topic, with its leaders spread over the brokers. It replaces one of the same name."""
        nodes = list(self.brokers)
        self.topic_ids[name] = uuid.uuid5(self.topic_ids.get(name, uuid.NAMESPACE_DNS), name)
        self.topics[name] = [FakePartition(nodes[index % len(nodes)]) for index in range(partitions)]
        return self.topics[name]

    def topic_id(self, name: str) -> uuid.UUID:
        return self.topic_ids[name]

    def partition(self, topic: str, number: int) -> FakePartition | None:
        partitions = self.topics.get(topic, [])
        return partitions[number] if number < len(partitions) else None

    def at(self, time_ms: int, event: Callable[[], object]) -> None:
        """Call `event` at `time_ms` of the cluster's clock."""
        self._events.append((time_ms, event))
        self._events.sort(key=lambda each: each[0])

    def metadata(self, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
        names_by_id = {topic_id: name for name, topic_id in self.topic_ids.items() if name in self.topics}
        wanted = [MetadataRequestTopic(name=name) for name in self.topics]
        wanted = wanted if request.topics is None else request.topics
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092, rack=broker.rack)
                for node, broker in self.brokers.items()
                if broker.is_up
            ],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[
                self._topic_metadata(topic.name or names_by_id.get(topic.topic_id), topic.topic_id, error)
                for topic in wanted
            ],
        )

    def describe(self, error: ErrorCode) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error,
            error_message=None,
            cluster_id="fake",
            controller_id=self.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=node, host=f"broker-{node}", port=9092)
                for node, broker in self.brokers.items()
                if broker.is_up
            ],
        )

    def _topic_metadata(
        self, name: str | None, topic_id: uuid.UUID, error: ErrorCode
    ) -> MetadataResponseTopic:
        if name is None:
            code = error or ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id, partitions=[])
        known = self.topics.get(name)
        if known is None or error:
            code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name, partitions=[])
        up = {node for node, broker in self.brokers.items() if broker.is_up}
        is_led = [partition.leader in up for partition in known]
        rows = [
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if is_led[index] else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if is_led[index] else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[partition.leader],
                isr_nodes=[partition.leader],
            )
            for index, partition in enumerate(known)
        ]
        return MetadataResponseTopic(error_code=0, name=name, topic_id=self.topic_ids[name], partitions=rows)

    def serve(self) -> None:
        """Carry out everything that is due."""
        while self._events and self._events[0][0] <= self.time_ms:
            self._events.pop(0)[1]()
        self.groups.tick()
        self.transactions.tick()
        self.ownership.tick()
        for broker in self.brokers.values():
            broker.serve()

    def next_ms(self) -> list[int]:
        """The times at which the next events are due."""
        group_ms, transaction_ms = self.groups.next_ms(), self.transactions.next_ms()
        return [
            *(until_ms for broker in self.brokers.values() for until_ms, *_ in broker.parked),
            *(time_ms for time_ms, _ in self._events),
            *(() if group_ms is None else (group_ms,)),
            *(() if transaction_ms is None else (transaction_ms,)),
            *self.ownership.next_ms(),
        ]

    # The network of the first client ------------------------------------------------------------------

    def connect(self, host: str, port: int) -> FakeChannel:
        return self._first_network.connect(host, port)

    def wait(self, timeout_ms: int, writing: Collection[Channel]) -> list[Channel]:
        return self._first_network.wait(timeout_ms, writing)

    def wake(self) -> None:
        self._first_network.wake()

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.time_ms

    def close(self) -> None:
        self._first_network.close()


IDLE_WAITS_MAX = 5_000
"""Above this number a client that waits in vain fails: a real one would use up a processor. No test polls so
often itself."""


class FakeNetwork:
    """The network of one client."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._channels: list[FakeChannel] = []
        self._is_woken = False
        self._idle_waits = 0
        """How many waits in a row had no event and took no time."""

    def connect(self, host: str, port: int) -> FakeChannel:
        number = host.removeprefix("broker-")
        broker = self._cluster.brokers.get(int(number)) if number.isdecimal() else None
        if broker is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        channel = FakeChannel(broker)
        broker.channels.append(channel)
        self._channels.append(channel)
        return channel

    def wait(self, timeout_ms: int, writing: Collection[Channel]) -> list[Channel]:
        cluster = self._cluster
        began_ms = cluster.time_ms
        deadline_ms = began_ms + max(0, timeout_ms)
        while True:
            cluster.serve()
            self._channels = [channel for channel in self._channels if not channel.is_closed]
            ready: list[Channel] = [
                channel
                for channel in self._channels
                if channel in writing or channel.outbox or channel.is_cut
            ]
            if ready or self._is_woken or cluster.time_ms >= deadline_ms:
                is_idle = not ready and not self._is_woken and cluster.time_ms == began_ms
                self._idle_waits = self._idle_waits + 1 if is_idle else 0
                assert self._idle_waits < IDLE_WAITS_MAX, "the client runs its loop although nothing is due"
                self._is_woken = False
                return ready
            cluster.time_ms = max(cluster.time_ms, min([deadline_ms, *cluster.next_ms()]))

    def wake(self) -> None:
        self._is_woken = True

    def now_ms(self) -> int:
        return self._cluster.now_ms()

    def wall_ms(self) -> int:
        return self._cluster.wall_ms()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()
