"""Fetch sessions (KIP-227): what a reader wants stays known, so that it names only what has changed, and is
answered only what is new.

A session keeps the partitions of one reader, and of these the *stirred* ones, of which there may be
something to say. Whatever moves in a partition (its end, its high watermark, its start, its leader) stirs it
in the sessions that hold it, and so does a reader that names it. Only stirred partitions are read: a fetch
costs what has changed, however many partitions its session has.

No network, no clock and no logs: sessions are told the time, and who reads what is decided in `reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from broker.replication.settings import SETTINGS
from broker.setting_groups import settings_group
from protocol.errors import ErrorCode, error_for
from protocol.messages.fetch import FetchPartition
from protocol.topic_partition import TopicPartition

NO_SESSION = 0
"""The session id of a reader that has no session."""
FIRST_EPOCH = 0
"""The session epoch of a request that asks for a session, and names all partitions."""
FINAL_EPOCH = -1
"""The session epoch of a request that wants no session, and ends the one that it names."""

_LAST_EPOCH = 2**31 - 1
_ID_BITS = 31
_EVICTABLE_MS = 120_000
"""A session that was not used, or that was there, for so long may have to make way for another."""
_NOT_TOLD = -1

NamedPartition: TypeAlias = "tuple[UUID | str, int]"
"""Topic id, or name, and index: a partition as the session's reader names it."""


def next_epoch(epoch: int) -> int:
    """The session epoch of the request that follows: it goes round, past the two that mean something else."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class Sleeper(Protocol):
    """A fetch that waits in a session."""

    def ask(self, key: SessionPartition) -> None:
        """There may be something new of this partition."""
        ...

    def expire(self) -> None:
        """Answer now."""
        ...


class FetchReader(NamedTuple):
    """Who holds a session. `replica_id` is -1 for a consumer; `connection_id` may change from use to use."""

    principal: str
    replica_id: int
    broker_epoch: int = -1
    connection_id: int = -1

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def registration(self) -> tuple[int, int]:
        """Which follower it is, in which of its lives: each has to be counted in each partition anew."""
        return self.replica_id, self.broker_epoch


@dataclass(slots=True, eq=False)
class SessionPartition:
    """A partition in a session: where its reader is, and what it was last told."""

    session: FetchSession
    named: NamedPartition
    wanted: FetchPartition
    key: TopicPartition | None = None
    """None while there is no topic of that id."""
    high_watermark: int = _NOT_TOLD
    log_start_offset: int = _NOT_TOLD

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the reader was told something else the last time; it counts as told from now on."""
        if self.high_watermark == high_watermark and self.log_start_offset == log_start_offset:
            return False
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        return True

    def calm(self) -> None:
        """There is nothing to say until something stirs it."""
        self.session.stirred.pop(self, None)

    def step_back(self) -> None:
        """It remains stirred, and stands behind those that may not have had their turn."""
        stirred = self.session.stirred
        stirred.pop(self, None)
        stirred[self] = None

    def fail(self) -> None:
        """The reader was told an error instead: once that is over it is told everything anew."""
        self.high_watermark = self.log_start_offset = _NOT_TOLD
        self.step_back()


@dataclass(slots=True, eq=False)
class FetchSession:
    """One reader's session. `epoch` is that of the request that is expected next."""

    id: int
    by_ids: bool
    """Whether the reader names topics by their ids (from version 13 on)."""
    reader: FetchReader
    created_ms: int
    used_ms: int
    epoch: int = 1
    partitions: dict[NamedPartition, SessionPartition] = field(default_factory=dict)
    stirred: dict[SessionPartition, None] = field(default_factory=dict)
    """In the order in which they are to be read."""
    waiting: Sleeper | None = None
    """The fetch that waits for one of the partitions."""

    def stir_all(self) -> None:
        """Look at everything again."""
        self.stirred = dict.fromkeys(self.partitions.values())


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions a broker keeps, and how many partitions all of them may hold together."""

    sessions_max: Annotated[int, "max.incremental.fetch.session.cache.slots"] = 1000
    partitions_max: Annotated[int, "max.incremental.fetch.session.cache.partitions"] = 500_000


class FetchSessions:
    """All sessions of a broker, by id, the one least recently used first.

    Where there is no room left a new session takes the place of one that has not been used for two minutes;
    or of a lesser one (a consumer's where a follower comes, the smaller of two of a kind) that a follower may
    displace at once and a consumer only after two minutes. If there is none, the reader gets no session, and
    goes on naming all partitions: sessions save work, and nobody depends on them.

    `draw` gives so many random bits: ids must not be guessed by other clients.
    """

    def __init__(self, draw: Callable[[int], int], limits: SessionLimits | None = None) -> None:
        self._draw = draw
        self._limits = limits or SessionLimits()
        self._sessions: dict[int, FetchSession] = {}
        self.watchers: dict[TopicPartition, dict[SessionPartition, None]] = {}
        """Who holds each partition; for others to see whether anybody does."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: TopicPartition) -> bool:
        """Whether any session holds the partition."""
        return key in self.watchers

    @property
    def partitions(self) -> int:
        """How many partitions all sessions hold together."""
        return self._partitions

    # -- requests ----------------------------------------------------------------------------------------

    def open(self, reader: FetchReader, *, by_ids: bool, partitions: int, now_ms: int) -> FetchSession | None:
        """A session for a reader of so many partitions, none of which it has yet; None where there is no
        room."""
        if not partitions or not self._make_room(reader, partitions, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._draw(_ID_BITS)
        session = self._sessions[session_id] = FetchSession(session_id, by_ids, reader, now_ms, now_ms)
        return session

    def use(
        self, session_id: int, epoch: int, reader: FetchReader, *, by_ids: bool, now_ms: int
    ) -> FetchSession:
        """The session that a request goes on with.

        Raises BrokerError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR; after any of them the reader begins a new one.
        """
        session = self._sessions.get(session_id)
        if session is None or session.reader.principal != reader.principal:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
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
        if session.waiting is not None:
            # The reader asks again, and so waits for that answer no more.
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

    def close(self, session_id: int, principal: str) -> None:
        """End the session of that id, if it is this principal's; harmless where there is none."""
        session = self._sessions.get(session_id)
        if session is not None and session.reader.principal == principal:
            self._remove(session)

    def close_all_of(self, connection_id: int) -> None:
        """The connection is gone, and with it the readers whose sessions were last used through it."""
        for session in [
            each for each in self._sessions.values() if each.reader.connection_id == connection_id
        ]:
            self._remove(session)

    # -- partitions of a session -------------------------------------------------------------------------

    def name(self, session: FetchSession, wanted: Iterable[tuple[UUID | str, FetchPartition]]) -> None:
        """Take partitions into the session, or take note of where the reader is in those it has.

        Raises BrokerError, and ends the session, where all sessions together would hold too many partitions:
        FETCH_SESSION_ID_NOT_FOUND, for then the reader asks for a new one, and is given one or not.
        """
        partitions = session.partitions
        for topic, position in wanted:
            named = (topic, position.partition)
            partition = partitions.get(named)
            if partition is None:
                if self._partitions >= self._limits.partitions_max:
                    self._remove(session)
                    raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the fetch session grew too large")
                partition = partitions[named] = SessionPartition(session, named, position)
                self._partitions += 1
            else:
                partition.wanted = position
            session.stirred[partition] = None

    def forget(self, session: FetchSession, forgotten: Iterable[NamedPartition]) -> None:
        """Take partitions out of the session; it ends with the last one."""
        for named in forgotten:
            partition = session.partitions.pop(named, None)
            if partition is not None:
                self._unwatch(partition)
        if not session.partitions:
            self._remove(session)

    def watch(self, partition: SessionPartition, key: TopicPartition) -> None:
        """The partition that the reader has named is this one: what moves there stirs it."""
        if partition.key != key and partition.session.partitions.get(partition.named) is partition:
            self._stop_watching(partition)
            partition.key = key
            self.watchers.setdefault(key, {})[partition] = None

    def is_open(self, session: FetchSession) -> bool:
        """Whether the session's reader may go on with it."""
        return self._sessions.get(session.id) is session

    # -- what moves --------------------------------------------------------------------------------------

    def stir(self, key: TopicPartition, *, followers: bool = False, consumers: bool = False) -> None:
        """Something has moved in a partition; of the fetches that wait in sessions, those of followers, or of
        consumers, are told at once."""
        watchers = self.watchers.get(key)
        if not watchers:
            return
        # A copy: an answer may lead to sessions being used, or closed.
        for partition in list(watchers):
            session = partition.session
            session.stirred[partition] = None
            if session.waiting is not None and (followers if session.reader.is_follower else consumers):
                session.waiting.ask(partition)

    def content(self, key: TopicPartition) -> Iterator[tuple[int, int]]:
        """The followers that have had all of a partition since it last moved, and when each last fetched:
        that counts for all partitions that its session holds, named or not."""
        for partition in self.watchers.get(key, ()):
            session = partition.session
            if session.reader.is_follower and partition not in session.stirred:
                yield session.reader.replica_id, session.used_ms

    # -- room --------------------------------------------------------------------------------------------

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
        return True

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
        self._sessions.pop(session.id, None)
        partitions, session.partitions = session.partitions, {}
        for partition in partitions.values():
            self._unwatch(partition)
        if session.waiting is not None:
            session.waiting.expire()

    def _unwatch(self, partition: SessionPartition) -> None:
        self._partitions -= 1
        partition.session.stirred.pop(partition, None)
        self._stop_watching(partition)

    def _stop_watching(self, partition: SessionPartition) -> None:
        key, partition.key = partition.key, None
        watchers = None if key is None else self.watchers.get(key)
        if key is not None and watchers is not None:
            watchers.pop(partition, None)
            if not watchers:
                del self.watchers[key]
