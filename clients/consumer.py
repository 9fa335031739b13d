"""The consumer: everything happens in `poll`, in the thread that calls it.

    with Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("flights")
        while True:
            for record in consumer.poll(1000):
                print(record.offset, record.value)

As in the client rewrite, "Consumer API". With a `group.id` the partitions of a topic are divided among the
members of the group; without one the consumer reads all of them. Single partitions can be read as well. What
concerns a group is in `clients.consuming.group_calls`.

A member of a group has a thread that sends heartbeats while the application handles records, for up to
`max.poll.interval.ms` between two calls of `poll` (KIP-62). With `enable.heartbeat.thread=false` no thread
runs in the background, as in the client rewrite: `poll`, and other calls that wait for a broker, send the
heartbeats, and a consumer that lets more than `session.timeout.ms` pass between two such calls loses its
partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from holdfast_log.clients.arguments import (
    A_NAME,
    A_PARTITION,
    A_TIMEOUT,
    A_WAIT,
    checked,
    optional,
)
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.consuming.group_calls import GroupCalls
from holdfast_log.clients.consuming.loop import ConsumerLoop, ConsumerParts, ReadClaims, consumer_parts
from holdfast_log.clients.errors import RequestTimeoutError, with_cause
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.arguments import (
    A_COUNT,
    A_PLACE_TO_SEEK,
    A_TOPIC_TO_ADD,
    OF_CONSUMERS,
    OFFSETS_TO_COMMIT,
    PARTITION_OR_ALL,
    TO_COMMIT,
)
from holdfast_log.clients.fetching.consumer_use import one_thread
from holdfast_log.clients.fetching.deserialization import DeadLetter, Deserializer
from holdfast_log.clients.fetching.fetched import EncodedBatch, FetchedBatch
from holdfast_log.clients.fetching.isolation import Isolation
from holdfast_log.clients.fetching.offsets import EARLIEST, LATEST
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.fetching.unknown_topics import check_topic_name
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.message import ConsumerRecord, OffsetAndMetadata
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.feedback.snapshots import ConsumerFeedback

_ITERATION_WAIT_MS = 60_000
_CLOSE_MS = 5_000
"""Default timeout of `close`, in ms."""


class BaseConsumer(GroupCalls):
    """Every method of a consumer, over parts and claims that are given to it.

    Not thread-safe, except for `wake`: raises ConcurrentUseError if two threads use it at once. All timeouts
    are in ms.
    """

    def __init__(self, parts: ConsumerParts, claims: ReadClaims | None = None) -> None:
        settings = parts.settings
        isolation = Isolation[settings["isolation.level"].upper()]
        super().__init__(parts.connection, parts.use, settings["default.api.timeout.ms"], isolation)
        self.settings = settings
        self._max_poll_records: int = settings["max.poll.records"]
        self._parts = parts
        self._loop = ConsumerLoop(parts, claims)
        self._fetcher = parts.fetcher
        self._buffer = parts.buffer
        self._group = parts.group

    # Topics and partitions ----------------------------------------------------------------------------

    @one_thread
    @checked(topic=A_TOPIC_TO_ADD, partition=PARTITION_OR_ALL)
    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Consume a topic, or one partition of it.

        With a `group.id` the group divides the topic's partitions among its members; this member gets its
        share in a later call of `poll`. Without one this consumer reads all partitions, those added later
        from their beginning. It always reads a single `partition` itself, from the group's committed offset
        if it has a group.

        Raises ValueError for a partition of a topic that was added as a whole to the group, and
        InvalidTopicError. A topic or partition that does not exist is reported by `poll`, as `unknown.topics`
        says, and read as soon as it exists.
        """
        check_topic_name(topic)
        if partition is not None:
            if self._group is not None and self._group.is_subscribed(topic):
                raise ValueError(f"the group assigns the partitions of {topic}: call remove_topic() first")
            self._parts.add_partition(TopicPartition(topic, partition))
        elif self._group is not None:
            self._group.subscribe(topic)
            self._loop.begin_beside()
        else:
            self._parts.discovery.add(topic)

    @one_thread
    @checked(topic=A_NAME, partition=PARTITION_OR_ALL)
    def remove_topic(self, topic: str, partition: int | None = None) -> None:
        """Stop consuming a topic, or one partition of it. In a group, other members get the partitions."""
        if partition is None:
            self._parts.discovery.discard(topic)
            if self._group is not None and self._group.unsubscribe(topic):
                return
        if self._group is not None:
            self._group.beside.remove(topic, partition)
        for key in self.assignment():
            if key.topic == topic and partition in (None, key.partition):
                self._fetcher.remove(key)
                self._buffer.drop(key)

    @one_thread
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        return list(self._fetcher.positions)

    @one_thread
    @checked(partition=A_PARTITION)
    def pause(self, partition: TopicPartition) -> None:
        """Return no records of a partition until `resume`; its position is kept."""
        position = self._position(partition)
        position.is_paused = True
        self._buffer.put_back(position)

    @one_thread
    @checked(partition=A_PARTITION)
    def resume(self, partition: TopicPartition) -> None:
        """Undo `pause`."""
        self._position(partition).is_paused = False

    # Records ------------------------------------------------------------------------------------------

    @one_thread
    @checked(timeout_ms=A_WAIT, max_records=optional(A_COUNT))
    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (default `max.poll.records`).

        Waits up to `timeout_ms` for the first record, and fetches ahead for the next call. Raises BrokerError
        for errors that are not retriable: OffsetOutOfRangeError if `auto.offset.reset` is none,
        CorruptMessageError, AuthorizationError, FencedInstanceIdError. Raises ClosedError.

        Raises RecordDeserializationError for a record that a deserializer cannot read, after the records
        before it were returned; `deserialization.errors` has other choices. Until the application has set the
        position of that partition by `seek`, every second call at least raises the error again, and those in
        between return records of other partitions.
        """
        limit = self._max_poll_records if max_records is None else max_records
        has_records = self._loop.run_until(timeout_ms, lambda: self._buffer.fill(limit))
        return self._buffer.take(limit) if has_records else []

    @one_thread
    @checked(timeout_ms=A_WAIT)
    def poll_batches(self, timeout_ms: int = 0) -> list[FetchedBatch]:
        """All fetched records, in whole batches and as columns, for processing in bulk.

        Otherwise like `poll`; the two may be mixed. Deserializers are not applied.
        """
        self._buffer.put_back_all()
        batches: list[FetchedBatch] = []
        self._loop.run_until(timeout_ms, lambda: self._take_batches(batches))
        self._buffer.records += sum(map(len, batches))
        return batches

    @one_thread
    @checked(timeout_ms=A_WAIT)
    def poll_encoded(self, timeout_ms: int = 0) -> list[EncodedBatch]:
        """All fetched records, in whole batches that are decompressed and still encoded.

        For programs that decode records themselves, such as `protocol.arrow_columns`. Whether the records are
        well-formed is not checked. A batch may begin before the position. Otherwise like `poll_batches`.
        """
        self._buffer.put_back_all()
        batches: list[EncodedBatch] = []
        self._loop.run_until(timeout_ms, lambda: self._take_encoded(batches))
        self._buffer.records += sum(batch.header.record_count for batch in batches)
        return batches

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records, one after the other, without end."""
        while True:
            yield from self.poll(_ITERATION_WAIT_MS)

    def _take_batches(self, batches: list[FetchedBatch]) -> bool:
        batches += self._fetcher.stored.take()
        return bool(batches)

    def _take_encoded(self, batches: list[EncodedBatch]) -> bool:
        batches += self._fetcher.stored.take_encoded()
        return bool(batches)

    # Positions ----------------------------------------------------------------------------------------

    @one_thread
    @checked(partition=A_PARTITION, offset=A_PLACE_TO_SEEK)
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at `offset`, which may be what `offsets_for_times` or `committed` returned.

        May be called after `add_topic`, before the first `poll`. In a group the position is then set when the
        group assigns the partition to this consumer; if it first assigns others, `poll` raises that once.
        """
        self._seek(partition, lambda position: position.go_to(offset))

    @one_thread
    @checked(partition=A_PARTITION)
    def seek_to_beginning(self, partition: TopicPartition) -> None:
        """Continue a partition at its first record. Otherwise like `seek`."""
        self._seek(partition, lambda position: position.go_to_time(EARLIEST))

    @one_thread
    @checked(partition=A_PARTITION)
    def seek_to_end(self, partition: TopicPartition) -> None:
        """Continue a partition at its end, with records written from now on. Otherwise like `seek`."""
        self._seek(partition, lambda position: position.go_to_time(LATEST))

    def _seek(self, partition: TopicPartition, go: Callable[[Position], None]) -> None:
        if partition not in self._fetcher.positions:
            if self._group is not None and self._group.seek_when_assigned(partition, go):
                return
            self._parts.discovery.expect(partition)
        self._buffer.drop(partition)
        go(self._position(partition))

    @one_thread
    @checked(partition=A_PARTITION, timeout_ms=A_TIMEOUT)
    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record of a partition that `poll` returns.

        Looks it up if it is not known yet. Raises RequestTimeoutError if that takes longer than `timeout_ms`.
        """
        position = self._position(partition)
        limit_ms = self._limit_ms(timeout_ms)
        deadline_ms = self._network.now_ms() + limit_ms
        while position.offset is None:
            left_ms = deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                raise position.last_error or RequestTimeoutError(
                    with_cause(
                        f"the position of {position.key} was not found within {limit_ms} ms",
                        self._connection.standing(self._metadata.leader(*position.key)),
                        self._connection.standing(ANY_NODE),
                    )
                )
            self._loop.turn(left_ms)
            self._fetcher.raise_problem()
        first_offset = self._buffer.first_offset(position.key)
        return position.offset if first_offset is None else first_offset

    @one_thread
    @checked(partition=A_PARTITION)
    def lag(self, partition: TopicPartition) -> int | None:
        """The number of offsets from the position to the high watermark; None while either is unknown."""
        position = self._position(partition)
        if position.offset is None or position.high_watermark is None:
            return None
        return max(0, position.high_watermark - self.position(partition))

    @one_thread
    @checked(partition=A_PARTITION)
    def last_error(self, partition: TopicPartition) -> Exception | None:
        """The error that keeps a partition from giving records, and that passes or that `poll` raises again;
        None if there is none."""
        unknown = self._parts.unknown_topics.error(partition)
        if unknown is not None and self._is_added(partition):
            return unknown
        position = self._position(partition)
        return position.unreadable or position.last_error or self._metadata.topic_error(partition.topic)

    def _is_added(self, partition: TopicPartition) -> bool:
        is_subscribed = self._group is not None and self._group.is_subscribed(partition.topic)
        is_read = partition in self._fetcher.positions
        return is_read or is_subscribed or self._parts.discovery.has(partition.topic)

    @one_thread
    def feedback(self) -> ConsumerFeedback:
        """Counts of records, fetches, rebalances, commits and requests so far."""
        from holdfast_log.clients.consuming.feedback import consumer_feedback  # Slow to import, seldom used.

        return consumer_feedback(self._connection.feedback(), self._fetcher, self._buffer, self._group)

    def _position(self, partition: TopicPartition) -> Position:
        position = self._fetcher.positions.get(partition)
        if position is None:
            raise self._not_read(partition)
        return position

    def _not_read(self, place: TopicPartition | str) -> BrokerError:
        topic = place if isinstance(place, str) else place.topic
        advice = "call add_topic() first"
        if self._group is not None and self._group.is_subscribed(topic):
            advice = "the group has not assigned it to this consumer. assignment() has what it reads"
        elif self._parts.discovery.has(topic):
            advice = "call poll() first, which finds the partitions of the topic"
        return error_for(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this consumer does not read {place}: {advice}"
        )

    # The group ----------------------------------------------------------------------------------------

    @one_thread
    @checked(
        topic=TO_COMMIT, partition=PARTITION_OR_ALL, offsets=optional(OFFSETS_TO_COMMIT), timeout_ms=A_TIMEOUT
    )
    def commit(
        self,
        topic: str | Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        partition: int | None = None,
        *,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets for the group: of all partitions, of those of a topic, or of one.

        The committed offset is the one after the last record that `poll` returned, unless `offsets` gives
        others; these may also be the first argument. Waits for the coordinator's answer. Raises
        UnknownTopicOrPartitionError for a topic or partition that this consumer does not read, without
        `offsets`; CommitFailedError if other members have the partitions now, FencedInstanceIdError,
        RequestTimeoutError, NoGroupError and others.
        """
        group = self._required_group("commit")
        if isinstance(topic, Mapping):
            if offsets is not None or partition is not None:
                raise TypeError("commit() takes a dict of offsets alone, or offsets=... alone")
            topic, offsets = None, topic
        if offsets is None:
            self._check_reads(topic, partition)
            offsets = {
                key: stored
                for key, stored in self._buffer.consumed().items()
                if topic in (None, key.topic) and partition in (None, key.partition)
            }
        elif topic is not None or partition is not None:
            raise TypeError("commit() takes a topic and a partition, or offsets=..., but not both")
        chosen = {
            key: OffsetAndMetadata(stored) if isinstance(stored, int) else stored
            for key, stored in offsets.items()
        }
        group.commits.commit(chosen, self._limit_ms(timeout_ms), self._loop.turn)

    def _check_reads(self, topic: str | None, partition: int | None) -> None:
        if topic is None:
            if partition is not None:
                raise ValueError(f"commit(partition={partition}) needs the topic of the partition too")
        elif partition is not None:
            self._position(TopicPartition(topic, partition))
        elif not self._is_added(TopicPartition(topic, 0)) and all(
            key.topic != topic for key in self._fetcher.positions
        ):
            raise self._not_read(topic)

    # The end ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make the `poll` in progress, or else the next one, return at once. Thread-safe."""
        self._loop.wake()

    @checked(timeout_ms=A_WAIT)
    def close(self, timeout_ms: int = _CLOSE_MS) -> None:
        """Commit if `enable.auto.commit` is set, leave the group and close all connections.

        Further calls do nothing, nor does a call in a process that was forked. Raises why the commit did not
        succeed within `timeout_ms`.
        """
        self._close(timeout_ms, has_failed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """As `close`, but without the commit if the block ended with an exception."""
        self._close(_CLOSE_MS, has_failed=kind is not None)

    def _close(self, timeout_ms: int, *, has_failed: bool) -> None:
        if self._use.is_forked:
            return  # The connections and the membership are the parent process's.
        entered = self._use.enter("close")
        try:
            self._loop.close(timeout_ms, has_failed=has_failed)
        finally:
            self._use.leave(entered)


class Consumer(BaseConsumer):
    """Reads messages. `properties` are Kafka's consumer properties, as a dict or the path of a file.

    `rebalance_listener` is called when the group assigns or revokes partitions, `on_event` for every other
    event (`clients.feedback.events`); both from within `poll` and other calls that wait. `dead_letter` is
    for `deserialization.errors=dead-letter`: `poll` calls it with the RecordDeserializationError of a record
    that cannot be read, and continues after the record once it has returned. Not thread-safe, except for
    `wake`. All timeouts are in ms. Raises ConfigError.

    With a `fence`, which the owner of partitions has given to this process, records are read for that owner,
    and from its partitions only: to add another one raises ValueError. When the owner's grant has ended,
    `poll` raises OwnershipFencedError.
    """

    @checked(**OF_CONSUMERS)
    def __init__(
        self,
        properties: Properties,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        rebalance_listener: RebalanceListener | None = None,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
        fence: OwnerFence | None = None,
        dead_letter: DeadLetter | None = None,
    ) -> None:
        super().__init__(
            consumer_parts(
                properties,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                rebalance_listener=rebalance_listener,
                network=network,
                rng=rng,
                on_event=on_event,
                fence=fence,
                dead_letter=dead_letter,
            )
        )
