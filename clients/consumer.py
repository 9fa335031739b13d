"""The consumer: everything happens in `poll`, in the thread that calls it.

    with Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("flights")
        while True:
            for record in consumer.poll(1000):
                print(record.offset, record.value)

As in the client rewrite, "Consumer API". A topic is shared with the other consumers of the same
`group.id`, or read whole by a consumer without one; single partitions can be read beside that.

There is no thread in the background: heartbeats go out from `poll`, and from other calls that wait for a
broker. Whoever takes longer than `session.timeout.ms` between two polls loses its partitions to the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from clients.config import Properties, consumer_settings
from clients.connection.connection import Connection
from clients.connection.network import ClientNetwork
from clients.errors import ClosedError, NoGroupError, RequestTimeoutError
from clients.feedback.events import OnEvent
from clients.fetching.fetched import FetchedBatch
from clients.fetching.fetcher import Fetcher
from clients.fetching.handout import Deserializer, Handout
from clients.fetching.offsets import EARLIEST, LATEST
from clients.fetching.positions import Position
from clients.fetching.queries import ConsumerQueries
from clients.fetching.settings import fetch_settings
from clients.fetching.whole_topics import WholeTopics
from clients.groups.listener import RebalanceListener
from clients.groups.membership import GroupIdentity
from clients.message import ConsumerRecord, OffsetAndMetadata
from protocol.errors import ErrorCode, error_for
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from clients.feedback.snapshots import ConsumerFeedback
    from clients.groups.session import GroupSession
    from clients.ownership.claims import OwnershipClaims

_ITERATION_WAIT_MS = 60_000
_CLOSE_MS = 5_000
"""How long `close` waits for the coordinator unless told otherwise."""


class Consumer(ConsumerQueries):
    """Reads messages. `properties` are Kafka's, from a dict or a properties file.

    `rebalance_listener` is told of partitions that the group gives and takes, `on_event` of whatever else
    happens (`clients.feedback.events`), from within `poll` and other calls that wait. Not for several threads
    at once. All timeouts are in ms. Raises ConfigError.
    """

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
    ) -> None:
        settings = consumer_settings(properties)
        connection = Connection(
            settings["bootstrap.servers"], settings, network=network, rng=rng, on_event=on_event
        )
        fetching = fetch_settings(settings)
        super().__init__(connection, settings["default.api.timeout.ms"], fetching.isolation)
        self.settings = settings
        self._max_poll_records: int = settings["max.poll.records"]
        self._fetcher = Fetcher(self._metadata, fetching, connection.events)
        self._whole_topics = WholeTopics(self._metadata, self._fetcher)
        self._handout = Handout(self._fetcher, key_deserializer, value_deserializer)
        self._is_woken = False
        self._is_closed = False
        self._claims: OwnershipClaims | None = None
        self._group: GroupSession | None = None
        if settings["group.id"] is not None:
            from clients.groups.opening import open_session  # Slow to import, and many do without.

            listener = rebalance_listener or RebalanceListener()
            self._group = open_session(
                settings, connection, self._fetcher, _Hands(self), listener, rng or random.Random()
            )

    # What is consumed ---------------------------------------------------------------------------------

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Consume one partition of a topic, or a share of the topic.

        With a `group.id` the topic's partitions are shared out among the members of the group: this one gets
        its share in one of the next calls of `poll`. Without one it gets all of them, those that are added
        later from their beginning. A partition that is named is read by this consumer in any case, from the
        offset that the group has committed, where there is a group.

        Raises ValueError for a partition of a topic that is shared.
        """
        if partition is not None:
            if self._group is not None and self._group.is_subscribed(topic):
                raise ValueError(
                    f"{topic} is shared with the group: its partitions are not for one to choose"
                )
            key = TopicPartition(topic, partition)
            is_new = key not in self._fetcher.positions
            position = self._fetcher.add(key)
            if is_new and self._group is not None:
                self._group.begin_at_committed(position)
        elif self._group is not None:
            self._group.subscribe(topic)
        else:
            self._whole_topics.add(topic)

    def remove_topic(self, topic: str, partition: int | None = None) -> None:
        """Stop consuming a topic, or one partition of it. A share of a topic goes to the other members."""
        if partition is None:
            self._whole_topics.discard(topic)
            if self._group is not None and self._group.unsubscribe(topic):
                return
        for key in self.assignment():
            if key.topic == topic and partition in (None, key.partition):
                self._fetcher.remove(key)
                self._handout.drop(key)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are consumed."""
        return list(self._fetcher.positions)

    def pause(self, partition: TopicPartition) -> None:
        """Get nothing of a partition until `resume`; its position is kept."""
        position = self._position(partition)
        position.is_paused = True
        self._handout.put_back(position)

    def resume(self, partition: TopicPartition) -> None:
        """Undo `pause`."""
        self._position(partition).is_paused = False

    # Records ------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (`max.poll.records`).

        Waits up to `timeout_ms` for the first, and fetches ahead for the next call meanwhile. Raises
        BrokerError for what will not pass by itself: OffsetOutOfRangeError where `auto.offset.reset` is none,
        CorruptMessageError, AuthorizationError; FencedInstanceIdError; ClosedError.
        """
        limit = self._max_poll_records if max_records is None else max_records
        self._run_until(timeout_ms, lambda: self._handout.fill(limit))
        return self._handout.take(limit)

    def poll_batches(self, timeout_ms: int = 0) -> list[FetchedBatch]:
        """All that has been fetched, in whole batches and as columns, for those who process in bulk.

        Otherwise as `poll`, with which it may be mixed. Deserializers are not applied.
        """
        self._handout.put_back_all()
        batches: list[FetchedBatch] = []
        self._run_until(timeout_ms, lambda: self._take_batches(batches))
        self._handout.records += sum(map(len, batches))
        return batches

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records, one after the other, for ever."""
        while True:
            yield from self.poll(_ITERATION_WAIT_MS)

    def _run_until(self, timeout_ms: int, has_something: Callable[[], bool]) -> None:
        """The network's event loop, until there is something or the time is over."""
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        group = self._group
        if group is not None:
            group.poll_begins()
        deadline_ms = self._network.now_ms() + timeout_ms
        is_over = False
        while True:
            if group is not None:
                group.settle()
            is_enough = (group is None or group.may_deliver()) and has_something()
            if not is_enough:
                self._fetcher.raise_problem()
            if is_over:
                break
            left_ms = deadline_ms - self._network.now_ms()
            self._turn(0 if is_enough else left_ms)
            if is_enough or self._is_woken:
                break
            is_over = left_ms <= 0  # What the last turn has brought is looked at once more.
        self._is_woken = False
        if group is not None:
            group.poll_ends()

    def _turn(self, wait_ms: int) -> None:
        """One turn: send what is due, take in what has come."""
        now_ms = self._network.now_ms()
        self._whole_topics.take_up_partitions()
        if self._group is not None:
            self._group.hold_back()
        calls = self._fetcher.calls(now_ms)
        times = [self._fetcher.next_event_ms(now_ms)]
        if self._claims is not None:
            calls += self._claims.calls(now_ms)
            times.append(self._claims.next_event_ms(now_ms))
        if self._group is not None:
            calls += self._group.calls(now_ms)
            times.append(self._group.next_event_ms(now_ms))
        for time_ms in times:
            if time_ms is not None:
                wait_ms = min(wait_ms, time_ms - now_ms)
        for reply in self._connection.poll(max(0, wait_ms), *calls):
            now_ms = self._network.now_ms()
            if self._claims is not None and self._claims.handle(reply, now_ms):
                continue
            if not self._fetcher.handle(reply, now_ms) and self._group is not None:
                self._group.handle(reply, now_ms)
        if self._group is not None:
            self._group.hold_back()
        self._connection.events.tell()

    def _take_batches(self, batches: list[FetchedBatch]) -> bool:
        batches += self._fetcher.take()
        return bool(batches)

    # Positions ----------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at `offset`."""
        self._handout.drop(partition)
        self._position(partition).go_to(offset)

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        """Continue a partition with the first record that it holds."""
        self._handout.drop(partition)
        self._position(partition).go_to_time(EARLIEST)

    def seek_to_end(self, partition: TopicPartition) -> None:
        """Continue a partition with what is written from now on."""
        self._handout.drop(partition)
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
        first_offset = self._handout.first_offset(position.key)
        return position.offset if first_offset is None else first_offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the high watermark; None while either is unknown."""
        position = self._position(partition)
        if position.offset is None or position.high_watermark is None:
            return None
        return max(0, position.high_watermark - self.position(partition))

    def last_error(self, partition: TopicPartition) -> Exception | None:
        """Why a partition gives nothing at the moment, where that has a reason that may pass."""
        return self._position(partition).last_error or self._metadata.topic_error(partition.topic)

    def feedback(self) -> ConsumerFeedback:
        """What has been read, and what was asked of brokers."""
        from clients.consumer_feedback import consumer_feedback  # Slow to import, and many do without.

        return consumer_feedback(self._connection.feedback(), self._fetcher, self._handout, self._group)

    def _position(self, partition: TopicPartition) -> Position:
        position = self._fetcher.positions.get(partition)
        if position is None:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not consumed: add_topic it first"
            )
        return position

    # The group ----------------------------------------------------------------------------------------

    def commit(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Store for the group how far it has read: all partitions, those of a topic, or one.

        That is after the last record that `poll` gave, or at the `offsets` that are given. Waits until the
        coordinator has it. Raises CommitFailedError where the partitions have gone to others,
        FencedInstanceIdError, RequestTimeoutError, NoGroupError and others.
        """
        group = self._required_group("commit")
        if offsets is None:
            chosen = {
                key: stored
                for key, stored in self._handout.consumed().items()
                if topic in (None, key.topic) and partition in (None, key.partition)
            }
        else:
            chosen = {
                key: OffsetAndMetadata(stored) if isinstance(stored, int) else stored
                for key, stored in offsets.items()
            }
        group.commit(chosen, self._api_timeout_ms if timeout_ms is None else timeout_ms)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for partitions, whoever owns them; None where nothing is."""
        group = self._required_group("committed")
        return group.committed(partitions, self._api_timeout_ms if timeout_ms is None else timeout_ms)

    def rewind(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Have the group continue at these offsets, in partitions of any of its members.

        For groups with `group.protocol=managed` (client rewrite, "Offset Rewind"): the owners stop,
        commit, and go on from there when this returns. The records of the last `poll` count as processed.
        Raises OffsetOutOfRangeError, UnknownTopicOrPartitionError, NoGroupError and others.
        """
        group = self._required_group("rewind")
        return group.rewind(offsets, self._api_timeout_ms if timeout_ms is None else timeout_ms)

    def group_identity(self) -> GroupIdentity:
        """The group, the generation and the member id that this consumer has in it; -1 and "" while none."""
        return self._required_group("group_identity").identity

    @property
    def last_commit_error(self) -> Exception | None:
        """Why the last automatic commit failed; None after one that succeeded."""
        return None if self._group is None else self._group.last_commit_error

    def _required_group(self, what: str) -> GroupSession:
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        if self._group is None:
            raise NoGroupError(f"{what}() is for consumers with a group.id")
        return self._group

    # The end ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make the `poll` under way, or else the next one, return at once. May be called by any thread."""
        self._is_woken = True
        self._connection.wake()

    def close(self, timeout_ms: int = _CLOSE_MS) -> None:
        """Leave the group, having committed if `enable.auto.commit` is set, and close all connections.

        May be called again. Raises what kept the commit from succeeding within `timeout_ms`.
        """
        self._close(timeout_ms, has_failed=False)

    def _close(self, timeout_ms: int, *, has_failed: bool) -> None:
        if self._is_closed:
            return
        try:
            if self._group is not None:
                self._take_leave(self._group, timeout_ms, has_failed)
        finally:
            self._is_closed = True
            self._connection.close()

    def _take_leave(self, group: GroupSession, timeout_ms: int, has_failed: bool) -> None:
        deadline_ms = self._network.now_ms() + timeout_ms
        try:
            group.close(timeout_ms, has_failed=has_failed)
        finally:
            farewell = group.leave_call()
            calls = [] if farewell is None else [farewell]
            while farewell is not None and (left_ms := deadline_ms - self._network.now_ms()) > 0:
                replies = self._connection.poll(left_ms, *calls)
                calls = []
                if any(reply.call is farewell for reply in replies):
                    break

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """As `close`. Where the application broke off, what it got last is not committed for it."""
        self._close(_CLOSE_MS, has_failed=kind is not None)


class _Hands:
    """What the group session may do with its consumer (`clients.groups.reader.ConsumerPort`)."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def turn(self, wait_ms: int) -> None:
        self._consumer._turn(wait_ms)

    def now_ms(self) -> int:
        return self._consumer._network.now_ms()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._consumer._handout.consumed()

    def put_back(self, partition: TopicPartition) -> None:
        self._consumer._handout.put_back(self._consumer._position(partition))
