"""The event loop inside a consumer, and the parts that it drives.

`Consumer` and `ExclusiveConsumer` are faces over one `ConsumerLoop`. An exclusive consumer hands the loop its
claims (`ReadClaims`), whose requests then travel on the same connections as fetches.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast_log.clients.config import Properties, consumer_settings
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.consuming.heartbeat_thread import HeartbeatThread
from holdfast_log.clients.errors import ClosedError, ConfigError
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.consumer_use import ConsumerUse
from holdfast_log.clients.fetching.deserialization import (
    DeadLetter,
    Deserialization,
    Deserializer,
    Unreadable,
)
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.partition_discovery import PartitionDiscovery
from holdfast_log.clients.fetching.record_buffer import RecordBuffer
from holdfast_log.clients.fetching.settings import fetch_settings
from holdfast_log.clients.fetching.unknown_topics import UnknownTopics
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.settings import Settings
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.groups.membership import OwnerTokens
    from holdfast_log.clients.groups.session import GroupSession


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerParts:
    """What a consumer is built of. `group` is None without a `group.id`."""

    settings: Settings
    connection: Connection
    fetcher: Fetcher
    buffer: RecordBuffer
    discovery: PartitionDiscovery
    unknown_topics: UnknownTopics
    group: GroupSession | None
    use: ConsumerUse
    has_heartbeat_thread: bool

    def add_partition(self, partition: TopicPartition) -> None:
        """Consume one partition: from the group's committed offset, or as `auto.offset.reset` says."""
        if self.group is not None and not self.group.beside.add(partition, self.group.membership.owned):
            return  # The group begins it once this member has given it back.
        is_new = partition not in self.fetcher.positions
        position = self.fetcher.add(partition)
        if is_new and self.group is not None:
            self.group.begin_at_committed(position)


def consumer_parts(
    properties: Properties,
    *,
    key_deserializer: Deserializer | None = None,
    value_deserializer: Deserializer | None = None,
    rebalance_listener: RebalanceListener | None = None,
    network: ClientNetwork | None = None,
    rng: random.Random | None = None,
    on_event: OnEvent | None = None,
    dead_letter: DeadLetter | None = None,
    tokens: OwnerTokens | None = None,
    fence: OwnerFence | None = None,
) -> ConsumerParts:
    """The parts of a consumer with these properties. `tokens` are those of a consumer that owns its
    partitions, `fence` is that of one that reads for their owner. Raises ConfigError."""
    settings = consumer_settings(properties)
    use = ConsumerUse()
    choice = Unreadable(settings["deserialization.errors"])
    _check_dead_letter(choice, dead_letter)
    connection = Connection(
        settings["bootstrap.servers"],
        settings,
        network=network,
        rng=rng,
        on_event=on_event,
        kind="consumer",
        allow_auto_topic_creation=settings["allow.auto.create.topics"],
    )
    fetcher = Fetcher(
        connection.metadata,
        fetch_settings(settings, fence),
        connection.events,
        connection.backoff,
        connection.log_name,
        connection.network.now_ms,
    )
    discovery = PartitionDiscovery(connection.metadata, fetcher)
    unknown_topics = UnknownTopics(
        connection.metadata,
        fetcher,
        connection.events,
        connection.log_name,
        raises=settings["unknown.topics"] == "raise",
    )
    deserialization = Deserialization(
        key_deserializer, value_deserializer, choice, dead_letter, connection.events
    )
    buffer = RecordBuffer(fetcher, deserialization)
    group = None
    if settings["group.id"] is not None:
        from holdfast_log.clients.groups.session_builder import (
            build_session,  # Slow to import; only groups need it.
        )

        listener = rebalance_listener or RebalanceListener()
        group = build_session(
            settings, connection, fetcher, buffer, listener, rng or random.Random(), use.away, tokens
        )
    return ConsumerParts(
        settings,
        connection,
        fetcher,
        buffer,
        discovery,
        unknown_topics,
        group,
        use,
        # A thread cannot sleep by the clock of a simulated network; the simulation calls `turn_beside`.
        has_heartbeat_thread=settings["enable.heartbeat.thread"] and network is None,
    )


def _check_dead_letter(choice: Unreadable, dead_letter: DeadLetter | None) -> None:
    if choice is Unreadable.DEAD_LETTER and dead_letter is None:
        raise ConfigError(
            "deserialization.errors=dead-letter needs the argument dead_letter: a DeadLetterTopic, or a "
            "function that stores the record of a RecordDeserializationError"
        )
    if choice is not Unreadable.DEAD_LETTER and dead_letter is not None:
        raise ConfigError(
            "the argument dead_letter has no effect: set deserialization.errors=dead-letter, or leave it out"
        )


class ReadClaims(Protocol):
    """Exclusive claims to partitions, as the loop of their consumer drives them. Times are in ms."""

    @property
    def error(self) -> Exception | None:
        """Why the claims were refused or lost for good; None otherwise."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether every claim is released."""
        ...

    def begin_turn(self) -> None:
        """Suspend the partitions that are not held now. Called before fetches are made."""
        ...

    def end_turn(self) -> None:
        """Suspend the partitions that are not held any more, and report events. Called after replies."""
        ...

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        ...

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of these calls."""
        ...

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` may have something new; None if only a reply can change that."""
        ...

    def release(self) -> None:
        """Give every claim back; `calls` then has the requests."""
        ...


class ConsumerLoop:
    """Runs requests and replies of a consumer's parts, in the thread that calls `turn` or `run_until`."""

    def __init__(self, parts: ConsumerParts, claims: ReadClaims | None = None) -> None:
        self.is_closed = False
        self._connection = parts.connection
        self._network = parts.connection.network
        self._fetcher = parts.fetcher
        self._discovery = parts.discovery
        self._unknown_topics = parts.unknown_topics
        self._group = parts.group
        self._claims = claims
        self._is_woken = False
        self._use = parts.use
        self._has_heartbeat_thread = parts.has_heartbeat_thread
        self._heartbeat_thread: HeartbeatThread | None = None

    def run_until(self, timeout_ms: int, has_something: Callable[[], bool]) -> bool:
        """Run the loop until `has_something()`, `wake` or the end of `timeout_ms`. Returns whether there is
        something that the application may have: a member whose session may be over may have lost it.

        Raises ClosedError, and the errors of the fetcher, the group and the claims.
        """
        if self.is_closed:
            raise ClosedError("the consumer is closed")
        claims = self._claims
        if claims is None:
            return self._run_until(timeout_ms, has_something)
        self.raise_claims_error()
        claims.begin_turn()
        found = self._run_until(timeout_ms, lambda: claims.error is not None or has_something())
        self.raise_claims_error()
        return found

    def raise_claims_error(self) -> None:
        """Raise why the claims were refused or lost, unless the consumer is closed."""
        if not self.is_closed and self._claims is not None and self._claims.error is not None:
            raise self._claims.error

    def _run_until(self, timeout_ms: int, has_something: Callable[[], bool]) -> bool:
        group = self._group
        if group is not None:
            group.heartbeats.poll_begins()
        try:
            return self._turns_until(timeout_ms, has_something)
        finally:
            if group is not None:
                group.heartbeats.application_begins()

    def _turns_until(self, timeout_ms: int, has_something: Callable[[], bool]) -> bool:
        group = self._group
        deadline_ms = self._network.now_ms() + timeout_ms
        is_late = False
        while True:
            if group is not None:
                group.settle()
            try:
                is_enough = (group is None or group.may_deliver()) and self._has(has_something)
                if not is_enough:
                    self._fetcher.raise_problem()
            except Exception:
                # An application may poll again and again with an error of one partition: the others, and
                # the heartbeats, need a turn too.
                self.turn(0)
                raise
            if is_late:
                break
            left_ms = deadline_ms - self._network.now_ms()
            self.turn(0 if is_enough or self._fetcher.stored.has_more else self._until_settle_ms(left_ms))
            if is_enough or self._is_woken:
                break
            is_late = left_ms <= 0  # The replies of the last turn are looked at once more.
        self._is_woken = False
        return is_enough

    def _until_settle_ms(self, at_most_ms: int) -> int:
        settle_ms = None if self._group is None else self._group.until_settle_ms()
        return at_most_ms if settle_ms is None else min(at_most_ms, settle_ms)

    def _has(self, has_something: Callable[[], bool]) -> bool:
        if self._heartbeat_thread is None:
            return has_something()
        with self._use.away():  # Deserializers run in here: they may take long.
            return has_something()

    def turn(self, wait_ms: int) -> None:
        """Send the requests that are due, wait up to `wait_ms` for replies, and process them."""
        if self._claims is not None:
            self._claims.begin_turn()
        now_ms = self._network.now_ms()
        self._discovery.add_partitions()
        self._unknown_topics.look(now_ms)
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
        if self._claims is not None:
            self._claims.end_turn()

    # Beside the application ---------------------------------------------------------------------------

    def begin_beside(self) -> None:
        """Start the thread that sends heartbeats while the application handles records."""
        if self._has_heartbeat_thread and self._heartbeat_thread is None and self._group is not None:
            group_id = self._group.identity.group_id
            self._heartbeat_thread = HeartbeatThread(self, f"holdfast heartbeats of {group_id}")

    def turn_beside(self) -> int | None:
        """Keep the membership alive, while the application is away. Returns the time until the next such turn
        in ms; None if the consumer is closed. Does not wait for replies: those that are not about the
        membership are left to the next `turn`."""
        group, events = self._group, self._connection.events
        with self._use.beside():
            if self.is_closed or group is None:
                return None
            events.is_held = True
            try:
                now_ms = self._network.now_ms()
                replies = self._connection.poll(0, *group.heartbeats.calls(now_ms))
                now_ms = self._network.now_ms()
                self._connection.keep([r for r in replies if not group.heartbeats.handle(r, now_ms)])
                return group.heartbeats.until_next_ms(now_ms)
            finally:
                events.is_held = False

    def wake(self) -> None:
        """Make the `run_until` in progress, or else the next one, return at once. Thread-safe."""
        self._is_woken = True
        self._connection.wake()

    # The end ------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int, *, has_failed: bool) -> None:
        """Leave the group, give claims back and close all connections, within `timeout_ms`.

        Offsets are committed first, because the next owner of a partition begins there. `has_failed` skips
        the commit, and so does an error of the claims.
        """
        if self.is_closed:
            return
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.end()
        deadline_ms = self._network.now_ms() + timeout_ms
        try:
            if self._group is not None:
                has_lost = self._claims is not None and self._claims.error is not None
                self._leave_group(self._group, timeout_ms, has_failed or has_lost)
        finally:
            self.is_closed = True
            if self._claims is not None:
                self._release(self._claims, deadline_ms)
            self._connection.close()

    def _leave_group(self, group: GroupSession, timeout_ms: int, has_failed: bool) -> None:
        deadline_ms = self._network.now_ms() + timeout_ms
        try:
            group.close(timeout_ms, self.turn, has_failed=has_failed)
        finally:
            leave = group.leave_call()
            calls = [] if leave is None else [leave]
            while leave is not None and (left_ms := deadline_ms - self._network.now_ms()) > 0:
                replies = self._connection.poll(left_ms, *calls)
                calls = []
                if any(reply.call is leave for reply in replies):
                    break

    def _release(self, claims: ReadClaims, deadline_ms: int) -> None:
        claims.release()
        while not claims.has_ended and (now_ms := self._network.now_ms()) < deadline_ms:
            due_ms = claims.next_event_ms(now_ms)
            wait_ms = deadline_ms - now_ms if due_ms is None else min(deadline_ms, due_ms) - now_ms
            for reply in self._connection.poll(max(0, wait_ms), *claims.calls(now_ms)):
                claims.handle(reply, self._network.now_ms())
