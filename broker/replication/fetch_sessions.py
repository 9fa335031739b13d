"""Fetch sessions (KIP-227): the broker remembers which partitions a reader fetches, so that requests name
only changed partitions and responses contain only news.

A session keeps the partitions of one reader and marks as *stirred* those that may have news. A change of a
partition (its end, high watermark, start or leader) stirs it in all sessions that contain it; a request that
names a partition stirs it too. Only stirred partitions are read: the cost of a fetch depends on the changes,
not on the number of partitions in its session.

This module uses no network, clock or log: callers pass the time, and `fetches` reads the logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated
from uuid import UUID

from holdfast_log.broker.replication.admission import NO_TOKEN
from holdfast_log.broker.replication.session_partitions import (
    FetchReader,
    FetchSession,
    NamedPartition,
    SessionPartition,
    Watchers,
)
from holdfast_log.broker.replication.settings import SETTINGS
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.fetch import FetchPartition
from holdfast_log.protocol.topic_partition import TopicPartition

NO_SESSION = 0
"""Session id of a reader without a session."""
FIRST_EPOCH = 0
"""Session epoch of a request that opens a session and names all its partitions."""
FINAL_EPOCH = -1
"""Session epoch of a request without a session. If the request names a session, it closes that session."""

_LAST_EPOCH = 2**31 - 1
_ID_BITS = 31
_EVICTABLE_MS = 120_000
"""Time in ms since a session's last use, or since its opening, after which another one may replace it."""
LEFT_MAX = 500
"""Maximum number of partitions of closed sessions that are dropped in one turn: one takes a microsecond."""


def next_epoch(epoch: int) -> int:
    """Session epoch of the next request. After the maximum it restarts at 1, skipping the special epoch 0."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Maximum number of sessions of a broker, of partitions in all sessions together, and of partitions in a
    fetch or a session of a consumer."""

    sessions_max: Annotated[int, "max.incremental.fetch.session.cache.slots"] = 1000
    partitions_max: Annotated[int, "max.incremental.fetch.session.cache.partitions"] = 500_000
    consumer_partitions_max: Annotated[int, "fetch.partitions.max"] = 5_000


class FetchSessions:
    """All sessions of a broker, by id, the least recently used first.

    At the limits, a new session replaces one that was not used for two minutes. If there is none, a
    follower's session replaces a consumer's, and a session replaces a smaller one of the same kind that was
    opened more than two minutes ago. A reader without a session names all its partitions in each fetch.

    A connection that closes may have held partitions by the hundred thousand. They count no more from then
    on, and are dropped `LEFT_MAX` a turn. A new session has to find room beside those that are left.

    `draw(bits)` returns random bits: other clients must not guess session ids. `soon(act)` calls `act` in
    another turn of the reactor.
    """

    def __init__(
        self,
        draw: Callable[[int], int],
        soon: Callable[[Callable[[], None]], object],
        limits: SessionLimits | None = None,
    ) -> None:
        self._draw = draw
        self._soon = soon
        self._limits = limits or SessionLimits()
        self._sessions: dict[int, FetchSession] = {}
        self.watchers: dict[TopicPartition, Watchers] = {}
        """The sessions' entries by partition. Public so that callers can skip partitions in no session."""
        self._partitions = 0
        self._left: deque[Iterator[SessionPartition]] = deque()
        """Partitions of closed sessions that are still among the watchers."""
        self._left_partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: TopicPartition) -> bool:
        """Whether any session holds the partition."""
        return key in self.watchers

    @property
    def by_id(self) -> dict[int, FetchSession]:
        """All sessions, the least recently used first. `_usual_fetch.c` moves a session that it uses."""
        return self._sessions

    @property
    def partitions(self) -> int:
        """Number of partitions in all sessions together."""
        return self._partitions

    @property
    def left_partitions(self) -> int:
        """Number of partitions of closed sessions that have not been dropped yet."""
        return self._left_partitions

    # -- requests ----------------------------------------------------------------------------------------

    def open(self, reader: FetchReader, *, by_ids: bool, partitions: int, now_ms: int) -> FetchSession | None:
        """Open an empty session for a reader that will name `partitions` partitions. Returns None if the
        limits leave no room."""
        if not partitions or not self._make_room(reader, partitions, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._draw(_ID_BITS)
        session = self._sessions[session_id] = FetchSession(session_id, by_ids, reader, now_ms, now_ms)
        return session

    def size_max(self, reader: FetchReader) -> int:
        """Maximum number of partitions in one fetch, or one session, of this reader."""
        limits = self._limits
        return limits.partitions_max if reader.is_follower else limits.consumer_partitions_max

    def use(
        self, session_id: int, epoch: int, reader: FetchReader, *, by_ids: bool, now_ms: int
    ) -> FetchSession:
        """Continue a session with its next request.

        A session with fences is found on its own connection only. Otherwise a client that guesses its id
        could read by its fences.

        Raises BrokerError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR; after any of them the reader opens a new session.
        """
        session = self._sessions.get(session_id)
        if (
            session is None
            or session.reader.principal != reader.principal
            or session.reader.is_follower != reader.is_follower
            or (session.reader.connection_id != reader.connection_id and session.has_fences)
        ):
            raise error_for(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session_id} does not exist"
            )
        if session.epoch != epoch:
            raise error_for(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"the next epoch of fetch session {session_id} is {session.epoch}, not {epoch}",
            )
        if session.by_ids != by_ids:
            raise error_for(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                "a fetch session cannot change between topic names and topic ids",
            )
        session.asked_after_ms = session.answered_ms
        if session.waiting is not None:
            # The reader has sent another fetch: answer the waiting one now.
            session.waiting.expire()
        if (reader.replica_id, reader.broker_epoch) != (
            session.reader.replica_id,
            session.reader.broker_epoch,
        ):
            session.stir_all()
        session.reader = reader
        session.epoch = next_epoch(epoch)
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def close(self, session_id: int, reader: FetchReader) -> None:
        """Close a session if it exists and belongs to this reader's principal. No consumer closes a
        follower's."""
        session = self._sessions.get(session_id)
        if (
            session is not None
            and session.reader.principal == reader.principal
            and session.reader.is_follower == reader.is_follower
        ):
            self._remove(session)

    def of_consumers(self) -> list[FetchSession]:
        """The sessions of readers that are no followers."""
        return [each for each in self._sessions.values() if not each.reader.is_follower]

    def close_all_of(self, connection_id: int) -> None:
        """Close the sessions that were last used through a connection, which has closed."""
        for session in list(self._sessions.values()):
            if session.reader.connection_id == connection_id:
                self._remove(session)

    # -- partitions of a session -------------------------------------------------------------------------

    def name(self, session: FetchSession, wanted: Iterable[tuple[UUID | str, FetchPartition]]) -> None:
        """Add partitions to the session, or update the reader's position in partitions that it holds. A
        partition keeps its fence where a later request names it without one.

        If this session or all together would hold too many partitions, closes the session and raises
        BrokerError: FETCH_SESSION_ID_NOT_FOUND, which makes the reader ask for a new session.
        """
        partitions = session.partitions
        size_max = self.size_max(session.reader)
        for topic, position in wanted:
            named = (topic, position.partition)
            partition = partitions.get(named)
            if partition is None:
                if self._partitions >= self._limits.partitions_max or len(partitions) >= size_max:
                    self._remove(session)
                    raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the fetch session is too large")
                partition = partitions[named] = SessionPartition(session, named, position)
                self._partitions += 1
            else:
                if position.owner_token == NO_TOKEN != partition.wanted.owner_token:
                    position.owner_token = partition.wanted.owner_token
                    position.owner_secret = partition.wanted.owner_secret
                partition.wanted = position
            session.stirred[partition] = None

    def forget(self, session: FetchSession, forgotten: Iterable[NamedPartition]) -> None:
        """Remove partitions from the session; close it if none is left."""
        for named in forgotten:
            partition = session.partitions.pop(named, None)
            if partition is not None:
                self._unwatch(partition)
        if not session.partitions:
            self._remove(session)

    def watch(self, partition: SessionPartition, key: TopicPartition) -> None:
        """Stir a session's partition whenever partition `key` changes."""
        if partition.key != key and partition.session.partitions.get(partition.named) is partition:
            self._stop_watching(partition)
            partition.key = key
            watchers = partition.watchers = self.watchers.setdefault(key, Watchers())
            watchers.awake[partition] = None

    def is_open(self, session: FetchSession) -> bool:
        """Whether the session has not been closed."""
        return self._sessions.get(session.id) is session

    # -- changes -----------------------------------------------------------------------------------------

    def stir(
        self,
        key: TopicPartition,
        *,
        followers: bool = False,
        consumers: bool = False,
        written_bytes: int | None = None,
        before: int = 0,
    ) -> None:
        """Stir a changed partition in all sessions that hold it. Check the waiting fetches of followers if
        `followers`, and those of consumers if `consumers`, else if they read from before an offset; if only
        records have come, so that the broker has appended `written_bytes`, no fetch that needs more."""
        watchers = self.watchers.get(key)
        if not watchers:
            return
        if written_bytes is None:
            watchers.wake_all()
        else:
            watchers.wake_up_to(written_bytes)
        # A copy: answering a fetch may open or close sessions.
        for partition in list(watchers.awake):
            session = partition.session
            if session.is_closed:
                continue
            session.stirred[partition] = None
            if written_bytes is not None:
                needed = session.needed.get(partition, 0)
                if written_bytes < needed:
                    if partition in watchers.awake:
                        watchers.sleep(partition, needed)
                    continue
            if session.waiting is None:
                continue
            if (
                followers
                if session.reader.is_follower
                else consumers or partition.wanted.fetch_offset < before
            ):
                session.waiting.ask(partition)

    def content(self, key: TopicPartition) -> Iterator[tuple[int, int]]:
        """(replica id, time of its last fetch in ms) of each follower that has fetched all records of a
        partition since its last change. A fetch counts for all partitions in its session, named or not."""
        for partition in self._awake(key):
            session = partition.session
            if session.reader.is_follower and partition not in session.stirred and not session.is_closed:
                yield session.reader.replica_id, session.used_ms

    def asked_after_ms(self, key: TopicPartition, leader_epoch: int) -> dict[int, int]:
        """For each follower that fetches a partition in this leader epoch, by replica id: the time in ms
        after which it built its last request. It followed this leader then, and led nothing itself."""
        return {
            each.session.reader.replica_id: each.session.asked_after_ms
            for each in self._followers(key)
            if each.wanted.current_leader_epoch == leader_epoch
        }

    def used_ms(self, key: TopicPartition) -> dict[int, int]:
        """For each follower that fetches a partition, by replica id: the time in ms of its last request."""
        return {each.session.reader.replica_id: each.session.used_ms for each in self._followers(key)}

    def _followers(self, key: TopicPartition) -> list[SessionPartition]:
        """The entries of followers' sessions for a partition; of one follower, the last session used last."""
        found = [
            each
            for each in self._awake(key)
            if each.session.reader.is_follower and not each.session.is_closed
        ]
        return sorted(found, key=lambda each: each.session.used_ms)

    def _awake(self, key: TopicPartition) -> Iterable[SessionPartition]:
        """The entries of all followers among others: a follower waits for no number of bytes."""
        watchers = self.watchers.get(key)
        return () if watchers is None else watchers.awake

    # -- limits ------------------------------------------------------------------------------------------

    def _make_room(self, reader: FetchReader, partitions: int, now_ms: int) -> bool:
        limits = self._limits
        if not limits.sessions_max or partitions > limits.partitions_max:
            return False
        while len(self._sessions) >= limits.sessions_max or (
            self._partitions + partitions > limits.partitions_max
        ):
            victim = self._victim(reader, partitions, now_ms)
            if victim is None:
                return False
            self._remove(victim)
        return self.left_partitions + self._partitions + partitions <= limits.partitions_max

    def _victim(self, reader: FetchReader, partitions: int, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms > _EVICTABLE_MS:
            return oldest
        least = min(
            (
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > _EVICTABLE_MS
                or (reader.is_follower and not session.reader.is_follower)
            ),
            key=lambda session: (session.reader.is_follower, len(session.partitions), session.id),
            default=None,
        )
        if least is None:
            return None
        rank = (least.reader.is_follower, len(least.partitions))
        return least if rank < (reader.is_follower, partitions) else None

    def _remove(self, session: FetchSession) -> None:
        if session.is_closed:
            return
        self._sessions.pop(session.id, None)
        count = len(session.partitions)
        self._partitions -= count
        self._left_partitions += count
        is_expected = bool(self._left)
        self._left.append(iter(session.close()))
        if not is_expected:
            self._drop_left()
        if session.waiting is not None:
            session.waiting.expire()

    def _drop_left(self) -> None:
        """Drop a turn's work of the partitions of closed sessions. The rest follows in later turns."""
        dropped = 0
        while self._left and dropped < LEFT_MAX:
            for partition in islice(self._left[0], LEFT_MAX - dropped):
                self._stop_watching(partition)
                dropped += 1
            if dropped < LEFT_MAX:
                self._left.popleft()
        self._left_partitions -= dropped
        if self._left:
            self._soon(self._drop_left)

    def _unwatch(self, partition: SessionPartition) -> None:
        self._partitions -= 1
        partition.session.stirred.pop(partition, None)
        partition.session.needed.pop(partition, None)
        self._stop_watching(partition)

    def _stop_watching(self, partition: SessionPartition) -> None:
        key, partition.key = partition.key, None
        watchers, partition.watchers = partition.watchers, None
        if key is not None and watchers is not None:
            watchers.discard(partition)
            if not watchers and self.watchers.get(key) is watchers:
                del self.watchers[key]
