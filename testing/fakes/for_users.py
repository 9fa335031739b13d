"""What users of `FakeCluster` call: topics and records, clients, failures set in advance, and time."""

from __future__ import annotations

import itertools
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import ConsumerRecord, Message
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.records import Record
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_broker import FakeBroker
    from holdfast_log.testing.fakes.fake_cluster import FakeNetwork
    from holdfast_log.testing.fakes.fake_groups import FakeGroups
    from holdfast_log.testing.fakes.fake_partition import FakePartition
    from holdfast_log.testing.fakes.fake_transactions import FakeTransactions

_REQUESTS = {api.name: api.request for api in APIS.values()}
_CUT, _CUT_AFTER = "cut", "cut after"


class UserInterface:
    """The public methods of a `FakeCluster`.

    Requests have Kafka's names: "Produce", "Fetch", "Metadata", "OffsetCommit", "Heartbeat" and so on. A
    method with a `broker` takes the number of one, from 1; None means whichever gets the request. It raises
    ValueError for a request, topic, partition or broker that there is not.
    """

    if TYPE_CHECKING:  # Parts of FakeCluster, which this is the interface of.
        brokers: dict[int, FakeBroker]
        topics: dict[str, list[FakePartition]]
        topic_ids: dict[str, uuid.UUID]
        groups: FakeGroups
        transactions: FakeTransactions
        faults: deque[tuple[type[Request[Any]], str | ErrorCode]]
        time_ms: int

        def network(self) -> FakeNetwork: ...
        def at(self, time_ms: int, event: Callable[[], object]) -> None: ...
        def add_topic(self, name: str, partitions: int = 1) -> list[FakePartition]: ...
        @property
        def bootstrap(self) -> str: ...

    # Topics and records -------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; the leaders of its partitions take turns. Raises TopicExistsError."""
        if name in self.topics:
            raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, name)
        self.add_topic(name, partitions)
        self.groups.topics_changed(name)

    def grow_topic(self, name: str, partitions: int) -> None:
        """Raise the number of a topic's partitions to `partitions`. Records stay where they are."""
        known = self._partitions(name)
        if partitions < len(known):
            raise ValueError(f"topic {name} has {len(known)} partitions: it cannot have {partitions}")
        topic_id = self.topic_ids[name]
        self.add_topic(name, partitions)[: len(known)] = known
        self.topic_ids[name] = topic_id
        self.groups.topics_changed(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        self._partitions(name)
        del self.topics[name]
        self.groups.topics_changed(name)

    def records(
        self, topic: str, partition: int | None = None, *, only_committed: bool = False
    ) -> list[ConsumerRecord]:
        """The records in a topic's log, or in that of one partition, in order; keys and values are bytes.
        With `only_committed`, without those of transactions that are open or were aborted."""
        partitions = self._partitions(topic)
        if partition is not None:
            self._partition(topic, partition)
        return [
            ConsumerRecord(topic, number, row.offset, row.timestamp, row.key, row.value, row.headers)
            for number in (range(len(partitions)) if partition is None else [partition])
            for row in _records_of(partitions[number], only_committed=only_committed)
        ]

    def write(self, *messages: Message) -> None:
        """Write messages as an application would that the test does not look at. Raises what fails."""
        for message in messages:
            self._partitions(message.topic)
        with self.producer() as producer:
            for response in [producer.send(message) for message in messages]:
                response.result()

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed."""
        return {TopicPartition(*where): offset for where, offset in self.groups.committed(group).items()}

    # Clients ------------------------------------------------------------------------------------------
    # Each has a network of its own, no thread, and the same randomness in every run.

    def producer(self, properties: Mapping[str, Any] | None = None, **arguments: Any) -> Producer:
        """A producer; `arguments` are those of Producer. It sends while a method of it or of its responses
        waits: `result`, `flush`, `close`, or `send` with a full buffer."""
        return Producer(self._given(properties), **self._surroundings(), is_threaded=False, **arguments)

    def consumer(self, properties: Mapping[str, Any] | None = None, **arguments: Any) -> Consumer:
        """A consumer; `arguments` are those of Consumer. It has no thread for heartbeats: those of a member
        of a group are sent while it polls."""
        return Consumer(self._given(properties), **self._surroundings(), **arguments)

    def admin(self, properties: Mapping[str, Any] | None = None) -> Admin:
        """An admin client. Configurations, quotas, reassignments and sizes on disk are not supported."""
        return Admin(self._given(properties), **self._surroundings())

    def exclusive_producer(
        self, topic: str, properties: Mapping[str, Any] | None = None, **arguments: Any
    ) -> ExclusiveProducer:
        """A producer that owns a topic; `arguments` are those of ExclusiveProducer. Its claim is renewed
        while it sends or waits."""
        return ExclusiveProducer(
            self._given(properties), topic, **self._surroundings(), is_threaded=False, **arguments
        )

    def exclusive_consumer(
        self,
        own_group: str,
        partitions: Iterable[TopicPartition],
        properties: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> ExclusiveConsumer:
        """A consumer that owns partitions; `arguments` are those of ExclusiveConsumer."""
        return ExclusiveConsumer(
            self._given(properties), own_group, partitions, **self._surroundings(), **arguments
        )

    def lease(
        self,
        group: str,
        resources: Iterable[str | TopicPartition],
        properties: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Lease:
        """A lease of names or partitions; `arguments` are those of Lease. `poll` renews it."""
        return Lease(
            self._given(properties),
            group,
            resources,
            **self._surroundings(),
            is_threaded=False,
            **arguments,
        )

    def _given(self, properties: Mapping[str, Any] | None) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **(properties or {})}

    def _surroundings(self) -> dict[str, Any]:
        return {"network": self.network(), "rng": random.Random(1)}

    # Failures -----------------------------------------------------------------------------------------

    def fail_next(self, request: str, error: ErrorCode, *, times: int = 1, broker: int | None = None) -> None:
        """Let the next `times` requests of a kind be refused with an error code."""
        self._plan(request, error, times, broker)

    def cut_next(
        self, request: str, *, is_carried_out: bool = False, times: int = 1, broker: int | None = None
    ) -> None:
        """Let the connection end at the next `times` requests of a kind: before the request is carried out,
        or after that and before the answer."""
        self._plan(request, _CUT_AFTER if is_carried_out else _CUT, times, broker)

    def _plan(self, request: str, how: str | ErrorCode, times: int, broker: int | None) -> None:
        faults = self.faults if broker is None else self._broker(broker).faults
        faults.extend(itertools.repeat((_request_named(request), how), times))

    def stop_broker(self, broker: int) -> None:
        """End a broker's connections, and refuse new ones. Nobody leads its partitions meanwhile, unless
        `move_leader` makes another broker their leader."""
        self._broker(broker).stop()

    def pause_broker(self, broker: int) -> None:
        """Let a broker accept requests without answering them."""
        self._broker(broker).is_silent = True

    def start_broker(self, broker: int) -> None:
        """Start a broker that was stopped, or let one that was paused go on."""
        self._broker(broker).start()

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition. No record is lost."""
        self._broker(broker)
        moved = self._partition(topic, partition)
        moved.leader = broker
        moved.leader_epoch += 1

    def move_coordinator(self, broker: int) -> None:
        """Make a broker the coordinator of all groups and transactions. It knows what the one before knew."""
        self._broker(broker)
        self.groups.move(broker)
        self.transactions.move(broker)

    def count_requests(self, request: str, broker: int | None = None) -> int:
        """How many requests of a kind the brokers got so far, or one of them."""
        kind = _request_named(request)
        asked = self.brokers.values() if broker is None else [self._broker(broker)]
        return sum(isinstance(each, kind) for one in asked for each in one.requests)

    # Time ---------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Let time pass: sessions and claims that nobody renews expire. Clients do nothing meanwhile."""
        self.network().wait(ms, ())

    def after(self, ms: int, event: Callable[[], object]) -> None:
        """Call `event` once `ms` have passed, while a client waits or in `advance`."""
        self.at(self.time_ms + ms, event)

    # Arguments ----------------------------------------------------------------------------------------

    def _broker(self, number: int) -> FakeBroker:
        if number not in self.brokers:
            raise ValueError(f"there is no broker {number}: the brokers are {list(self.brokers)}")
        return self.brokers[number]

    def _partitions(self, topic: str) -> list[FakePartition]:
        if topic not in self.topics:
            raise ValueError(f"there is no topic {topic!r}: create it with create_topic")
        return self.topics[topic]

    def _partition(self, topic: str, number: int) -> FakePartition:
        partitions = self._partitions(topic)
        if not 0 <= number < len(partitions):
            raise ValueError(f"topic {topic} has {len(partitions)} partitions, and no partition {number}")
        return partitions[number]


def _records_of(partition: FakePartition, *, only_committed: bool) -> list[Record]:
    return partition.committed_records() if only_committed else partition.records()


def _request_named(name: str) -> type[Request[Any]]:
    if name not in _REQUESTS:
        raise ValueError(f"there is no request {name!r}: requests have names such as Produce and Heartbeat")
    return _REQUESTS[name]
