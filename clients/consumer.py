"""The consumer: everything happens in `poll`, in the thread that calls it.

    with Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("flights")
        while True:
            for record in consumer.poll(1000):
                print(record.offset, record.value)

After the seed client-rewrite, "Consumer API". Partitions are assigned statically so far: one by one, or all
of a topic to a consumer without a group.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias

from clients.config import Properties, consumer_settings
from clients.connection import ANY_NODE, Connection
from clients.errors import ClosedError, GroupsUnavailableError, RequestTimeoutError
from clients.fetcher import FetchedBatch, Fetcher, FetchSettings, Position
from clients.message import ConsumerRecord, TopicPartition
from clients.network import Network
from clients.offsets import EARLIEST, LATEST, OffsetAndTimestamp, look_up_offsets, wait_for_metadata
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.metadata import MetadataRequest

Deserializer: TypeAlias = Callable[[str, bytes], Any]
"""(topic, key or value) -> what the application wants in their place; not called for null."""

_ITERATION_WAIT_MS = 60_000


class Consumer:
    """Reads messages. `properties` are Kafka's, from a dict or a properties file.

    Not for several threads at once. All timeouts are in ms. Raises ConfigError.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        network: Network | None = None,
        rng: random.Random | None = None,
    ) -> None:
        settings = consumer_settings(properties)
        self.settings = settings
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._max_poll_records: int = settings["max.poll.records"]
        self._api_timeout_ms: int = settings["default.api.timeout.ms"]
        self._connection = Connection(settings["bootstrap.servers"], settings, network=network, rng=rng)
        self._metadata = self._connection.metadata
        self._network = self._connection.network
        self._fetcher = Fetcher(
            self._metadata,
            FetchSettings(
                min_bytes=settings["fetch.min.bytes"],
                max_wait_ms=settings["fetch.max.wait.ms"],
                max_bytes=settings["fetch.max.bytes"],
                max_partition_bytes=settings["max.partition.fetch.bytes"],
                check_crcs=settings["check.crcs"],
                batch_max_bytes=settings["batch.max.bytes"],
                reset=settings["auto.offset.reset"],
                retry_backoff_ms=settings["retry.backoff.ms"],
            ),
        )
        self._whole_topics: dict[str, bool] = {}  # whether its partitions have been taken up once
        self._seen_update = 0
        self._leftover: deque[ConsumerRecord] = deque()
        self._is_woken = False
        self._is_closed = False

    # What is consumed ---------------------------------------------------------------------------------

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Consume one partition of a topic, or all of them.

        Without a `group.id` this consumer gets all of a topic's partitions, those that are added later from
        their beginning. With one, they would be shared out among the group's members: raises
        GroupsUnavailableError, since this client cannot do that yet.
        """
        if partition is not None:
            self._fetcher.add(TopicPartition(topic, partition))
            return
        if self.settings["group.id"] is not None:
            raise GroupsUnavailableError(
                f"add_topic({topic!r}) with a group.id asks for a share of the topic, and this client does "
                "not take part in groups yet: leave group.id out, or name a partition"
            )
        self._whole_topics.setdefault(topic, False)
        self._metadata.want(topic)
        self._take_up_partitions()

    def remove_topic(self, topic: str, partition: int | None = None) -> None:
        """Stop consuming a topic, or one partition of it."""
        if partition is None:
            self._whole_topics.pop(topic, None)
        for key in self.assignment():
            if key.topic == topic and partition in (None, key.partition):
                self._fetcher.remove(key)
                self._drop_leftover(key)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are consumed."""
        return list(self._fetcher.positions)

    def pause(self, partition: TopicPartition) -> None:
        """Get nothing of a partition until `resume`; its position is kept."""
        position = self._position(partition)
        position.is_paused = True
        self._push_back_leftover(position)

    def resume(self, partition: TopicPartition) -> None:
        """Undo `pause`."""
        self._position(partition).is_paused = False

    # Records ------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (`max.poll.records`).

        Waits up to `timeout_ms` for the first.
        Fetches ahead for the next call meanwhile. Raises BrokerError for what will not pass by itself:
        OffsetOutOfRangeError where `auto.offset.reset` is none, CorruptMessageError, AuthorizationError;
        ClosedError.
        """
        limit = self._max_poll_records if max_records is None else max_records
        self._run_until(timeout_ms, lambda: self._fill(limit))
        count = min(limit, len(self._leftover))
        return [self._leftover.popleft() for _ in range(count)]

    def poll_batches(self, timeout_ms: int = 0) -> list[FetchedBatch]:
        """All that has been fetched, in whole batches and as columns, for those who process in bulk.

        Otherwise as `poll`, with which it may be mixed. Deserializers are not applied.
        """
        if self._leftover:
            for position in self._fetcher.positions.values():
                self._push_back_leftover(position)
        batches: list[FetchedBatch] = []
        self._run_until(timeout_ms, lambda: self._take_batches(batches))
        return batches

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records, one after the other, for ever."""
        while True:
            yield from self.poll(_ITERATION_WAIT_MS)

    def _run_until(self, timeout_ms: int, has_something: Callable[[], bool]) -> None:
        """The network's event loop, until there is something or the time is over."""
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        deadline_ms = self._network.now_ms() + timeout_ms
        while True:
            is_enough = has_something()
            if not is_enough:
                self._fetcher.raise_problem()
            left_ms = deadline_ms - self._network.now_ms()
            self._turn(0 if is_enough else left_ms)
            if is_enough or self._is_woken or (left_ms <= 0 and not has_something()):
                self._is_woken = False
                return

    def _turn(self, wait_ms: int) -> None:
        """One turn: send what is due, take in what has come."""
        now_ms = self._network.now_ms()
        self._take_up_partitions()
        calls = self._fetcher.calls(now_ms)
        event_ms = self._fetcher.next_event_ms(now_ms)
        if event_ms is not None:
            wait_ms = min(wait_ms, event_ms - now_ms)
        for reply in self._connection.poll(max(0, wait_ms), *calls):
            self._fetcher.handle(reply, self._network.now_ms())

    def _take_up_partitions(self) -> None:
        """Take up the partitions of whole topics that metadata has told of since."""
        if self._seen_update == self._metadata.update_count and all(self._whole_topics.values()):
            return
        self._seen_update = self._metadata.update_count
        for topic, is_known in self._whole_topics.items():
            info = self._metadata.topics.get(topic)
            if info is None:
                continue
            for row in info.partitions:
                key = TopicPartition(topic, row.partition)
                if key not in self._fetcher.positions:
                    position = self._fetcher.add(key)
                    if is_known:
                        position.go_to_time(EARLIEST)  # Added to the topic since: nothing in it is old.
            self._whole_topics[topic] = True

    def _fill(self, limit: int) -> bool:
        """Have `limit` records at hand, if so many have been fetched."""
        try:
            while len(self._leftover) < limit:
                batch = next(self._fetcher.take(), None)
                if batch is None:
                    break
                self._leftover += self._records(batch)
        except BrokerError:
            if not self._leftover:  # Else these come first.
                raise
        return bool(self._leftover)

    def _take_batches(self, batches: list[FetchedBatch]) -> bool:
        batches += self._fetcher.take()
        return bool(batches)

    def _records(self, batch: FetchedBatch) -> Iterable[ConsumerRecord]:
        columns = batch.columns
        keys: Iterable[Any] = columns.keys
        values: Iterable[Any] = columns.values
        if self._key_deserializer is not None:
            keys = _deserialized(keys, batch.topic, self._key_deserializer)
        if self._value_deserializer is not None:
            values = _deserialized(values, batch.topic, self._value_deserializer)
        fields = zip(
            repeat(batch.topic),
            repeat(batch.partition),
            columns.offsets,
            columns.timestamps,
            keys,
            values,
            repeat(()) if columns.headers is None else columns.headers,
            repeat(batch.timestamp_type),
            repeat(batch.leader_epoch),
            strict=False,
        )
        return map(ConsumerRecord._make, fields)

    # Positions ----------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at `offset`."""
        self._drop_leftover(partition)
        self._position(partition).go_to(offset)

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        """Continue a partition with the first record that it holds."""
        self._drop_leftover(partition)
        self._position(partition).go_to_time(EARLIEST)

    def seek_to_end(self, partition: TopicPartition) -> None:
        """Continue a partition with what is written from now on."""
        self._drop_leftover(partition)
        self._position(partition).go_to_time(LATEST)

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that `poll` gives of a partition.

        Finds it out where it is not known yet; raises RequestTimeoutError where that takes too long.
        """
        position = self._position(partition)
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._network.now_ms() + limit_ms
        while position.offset is None:
            left_ms = deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                raise position.last_error or RequestTimeoutError(
                    f"the position in {position.key} is not known after {limit_ms} ms"
                )
            self._turn(left_ms)
            self._fetcher.raise_problem()
        first_left = next((record for record in self._leftover if _is_of(record, position.key)), None)
        return position.offset if first_left is None else first_left.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the high watermark; None while either is unknown."""
        position = self._position(partition)
        if position.offset is None or position.high_watermark is None:
            return None
        return max(0, position.high_watermark - self.position(partition))

    def last_error(self, partition: TopicPartition) -> Exception | None:
        """Why a partition gives nothing at the moment, where that has a reason that may pass."""
        return self._position(partition).last_error or self._metadata.topic_error(partition.topic)

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[int]:
        """The numbers of a topic's partitions.

        Raises UnknownTopicOrPartitionError where there is no such topic, RequestTimeoutError.
        """
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._network.now_ms() + limit_ms
        self._metadata.want(topic)
        while topic not in self._metadata.topics:
            error = self._metadata.topic_error(topic)
            if error is not None:
                raise error_for(error.code, f"topic {topic}: {error.message}")
            left_ms = deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                raise RequestTimeoutError(f"nothing is known of topic {topic} after {limit_ms} ms")
            wait_for_metadata(self._connection, left_ms)
        return [row.partition for row in self._metadata.topics[topic].partitions]

    def topics(self, timeout_ms: int | None = None) -> list[str]:
        """The names of all topics that are not internal, sorted."""
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = self._connection.ask(ANY_NODE, request, limit_ms)
        return sorted(row.name for row in response.topics if row.name is not None and not row.is_internal)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition holds."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST), timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that consumers may see."""
        return self._offsets(dict.fromkeys(partitions, LATEST), timeout_ms)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms since the epoch); None where there is none."""
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        found = look_up_offsets(self._connection, times, limit_ms)
        return {key: None if answer.offset < 0 else answer for key, answer in found.items()}

    def _offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        found = look_up_offsets(self._connection, times, limit_ms)
        return {key: answer.offset for key, answer in found.items()}

    def _position(self, partition: TopicPartition) -> Position:
        position = self._fetcher.positions.get(partition)
        if position is None:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not consumed: add_topic it first"
            )
        return position

    def _drop_leftover(self, key: TopicPartition) -> None:
        if self._leftover:
            self._leftover = deque(record for record in self._leftover if not _is_of(record, key))

    def _push_back_leftover(self, position: Position) -> None:
        """Have records that were decoded and not handed out be fetched again, when they are wanted."""
        first = next((record for record in self._leftover if _is_of(record, position.key)), None)
        if first is not None:
            self._drop_leftover(position.key)
            position.go_to(first.offset)

    # The end ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make the `poll` under way, or else the next one, return at once. May be called by any thread."""
        self._is_woken = True
        self._connection.wake()

    def close(self) -> None:
        """Close all connections. May be called again."""
        self._is_closed = True
        self._connection.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_of(record: ConsumerRecord, key: TopicPartition) -> bool:
    return record.partition == key.partition and record.topic == key.topic


def _deserialized(column: Iterable[bytes | None], topic: str, deserializer: Deserializer) -> Iterable[Any]:
    return [None if item is None else deserializer(topic, item) for item in column]
