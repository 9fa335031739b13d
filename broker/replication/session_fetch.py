"""Fetches of a session (KIP-227): they read only stirred partitions and return only news. A partition without
news is not read again until a change stirs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import cast

from holdfast_log.broker.replication.fetch_sessions import NO_SESSION
from holdfast_log.broker.replication.long_fetch import ReadingTurns, parts
from holdfast_log.broker.replication.partition import CONSUMER_ID
from holdfast_log.broker.replication.plain_fetch import SHARED_KEYS_MAX, counted_bytes, share
from holdfast_log.broker.replication.reads import AnswerReads, Read, ReadLimits, read_all, taken_bytes
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.session_partitions import FetchSession, SessionPartition

READS_MAX = 500
"""Maximum number of partitions that are read for one fetch of a consumer's session, but for its first."""


class SessionFetch:
    """One fetch of a session, from its request to its response.

    `locate(member, connection)` finds the partition of a session's entry. `answer` is called once there are
    `min_bytes` of records or an error, or the fetch has timed out. `is_full` is true for the first fetch of
    a session, whose response has all partitions.
    """

    __slots__ = (
        "_answer", "_by_member", "_connection", "_counted", "_has_more", "_is_full", "_limits", "_locate",
        "_reads", "_replicas", "_session", "_total",
    )  # fmt: skip

    def __init__(
        self,
        replicas: Replicas,
        session: FetchSession,
        limits: ReadLimits,
        locate: Callable[[SessionPartition, int], Read],
        answer: AnswerReads,
        *,
        is_full: bool,
    ) -> None:
        self._replicas = replicas
        self._session = session
        self._connection = session.reader.connection_id
        self._limits = limits
        self._locate = locate
        self._answer = answer
        self._is_full = is_full
        self._reads: list[Read] = []
        self._by_member: dict[SessionPartition, Read] = {}
        self._counted: dict[SessionPartition, int | None] = {}
        self._total = 0
        self._has_more = False  # partitions that a later fetch reads

    def begin(self) -> None:
        """Read, then answer or wait."""
        session, limits = self._session, self._limits
        self._find_reads()
        if session.reader.is_follower:
            self._record_all()
        self._read()
        wait = limits.max_wait_ms > 0 and self._total < limits.min_bytes and not self._has_more
        if not wait or any(read.is_final for read in self._reads):
            self._end()
            return
        self._by_member = {cast(SessionPartition, read.member): read for read in self._reads}
        replicas = self._replicas
        waiting = replicas.followers if session.reader.is_follower else replicas.readers
        parked = waiting.park((), limits.max_wait_ms, self.look, self.finish, self._connection)
        if not parked.is_over:
            session.waiting = parked
            self._count_reads()

    async def begin_in_turns(self, turns: ReadingTurns) -> None:
        """Read a few partitions a turn, and answer without a wait: for the first fetch of a session of many
        partitions. What is news is decided in the turn in which a partition is read, so that whatever changes
        it afterwards stirs it for the next fetch."""
        session, news, taken = self._session, list[Read](), 0
        for members in parts(list(session.partitions.values())):
            await turns.other_turn()
            part = [self._locate(member, self._connection) for member in members]
            read_all(self._replicas, part, self._limits.max_bytes, CONSUMER_ID, before=taken)
            taken += taken_bytes(part)
            # A session that had to make room for another one has no news: its reader opens a new one.
            news += part if session.is_closed else self._news(part)
        self._answer_with(news)

    def read_again(self, *, ends: bool) -> bool:
        """Read for a fetch that was begun by `UsualFetches`, and answer it if it is complete or `ends`.
        Returns whether it was answered."""
        self._find_reads()
        self._read()
        is_complete = self._total >= self._limits.min_bytes or any(read.is_final for read in self._reads)
        if not ends and not is_complete:
            self._count_reads()
            return False
        self._end()
        return True

    def _count_reads(self) -> None:
        for read in self._reads:
            self._counted[cast(SessionPartition, read.member)] = counted_bytes(self._replicas, read)
        self._note_needed()

    def _note_needed(self) -> None:
        """Note what the fetch needs of each partition that it has read; it looks at the others at any change.
        If no partition has its share of the missing bytes, all together lack some."""
        session = self._session
        if session.reader.is_follower or not 0 < len(session.partitions) <= SHARED_KEYS_MAX:
            return
        part = share(self._limits.min_bytes - self._total, len(session.partitions))
        session.need(
            {member: counted + part for member, counted in self._counted.items() if counted is not None}
        )

    def _find_reads(self) -> None:
        session = self._session
        stirred: Iterable[SessionPartition] = session.stirred
        self._has_more = False
        if not self._is_full and not session.reader.is_follower and len(session.stirred) > READS_MAX:
            # The rest stays stirred, for the reader's next fetches: others wait while this one is answered.
            self._has_more = True
            stirred = itertools.islice(stirred, READS_MAX)
        # A copy: `locate` watches the partition, so that a change may stir it during the loop.
        self._reads = [self._locate(member, self._connection) for member in list(stirred)]

    def _record_all(self) -> None:
        """Record a follower's positions. What they commit may have this broker append to other partitions in
        the same turn, as a coordinator does with the markers of a transaction: the fetch reads those too, for
        nothing wakes it before it waits."""
        session, recorded = self._session, 0
        while recorded < len(self._reads):
            for read in self._reads[recorded:]:
                self._record(read)
            recorded = len(self._reads)
            if len(session.stirred) > recorded:
                found = {read.member for read in self._reads}
                more = [member for member in session.stirred if member not in found]
                self._reads += [self._locate(member, self._connection) for member in more]

    def _record(self, read: Read) -> None:
        """Record a follower's position in a partition that it named or that has changed."""
        if read.error is not None:
            return
        reader = self._session.reader
        read.error = self._replicas.try_record_fetch(
            read.topic, read.wanted, reader.replica_id, reader.broker_epoch
        )

    def _read(self) -> None:
        session = self._session
        self._total = read_all(
            self._replicas,
            self._reads,
            self._limits.max_bytes,
            session.reader.replica_id,
            stops_when_full=not self._is_full,
        )

    def look(self, key: Hashable) -> bool:
        """Answer if the partition that has changed completes the fetch, and return whether it does. Unless it
        does only that one is read: the cost must not grow with the number of stirred ones."""
        member = cast(SessionPartition, key)
        read = self._by_member.get(member)
        if read is None:
            read = self._by_member[member] = self._locate(member, self._connection)
        before = read.size
        read_all(self._replicas, [read], self._limits.max_bytes, self._session.reader.replica_id)
        self._total += read.size - before
        if not read.is_final and self._total < self._limits.min_bytes:
            self._counted[member] = counted_bytes(self._replicas, read)
            self._note_needed()
            return False
        if len(self._session.stirred) == 1 and not self._is_full:
            # No other partition can add bytes to the response.
            self._reads = [read]
            self._end()
        else:
            self.finish()
        return True

    def finish(self) -> None:
        """Answer with what there is."""
        if not self._is_full:
            self._find_reads()
        self._read()
        self._end()

    def _end(self) -> None:
        self._answer_with(self._news(self._reads))

    def _answer_with(self, news: Sequence[Read]) -> None:
        session = self._session
        session.waiting = None
        session.need({})
        session.answered_ms = self._replicas.monotonic_ms()
        session_id = session.id if self._replicas.sessions.is_open(session) else NO_SESSION
        self._answer(session_id, news)

    def _news(self, reads: Iterable[Read]) -> list[Read]:
        """The partitions to return of those that were read. Marks their offsets as sent."""
        return [read for read in reads if self._is_news(read) or self._is_full]

    def _is_news(self, read: Read) -> bool:
        member = cast(SessionPartition, read.member)
        if read.is_final:
            member.fail()
            return True
        found = read.read
        if found is None:
            return False  # The response had no room for this partition; a later fetch reads it.
        is_news = member.is_news(found.high_watermark, found.log_start_offset)
        if found.records is not None:
            # The reader may fetch these records again until it names a later offset.
            member.step_back()
            return True
        if found.end_offset <= read.wanted.fetch_offset and not self._may_join(read):
            member.calm()
        return is_news

    def _may_join(self, read: Read) -> bool:
        """Whether the follower's next fetch may add it to the in-sync set."""
        reader = self._session.reader
        if not reader.is_follower:
            return False
        partition = self._replicas.find(read.topic, read.wanted.partition)
        return partition is None or not partition.is_in_sync(reader.replica_id)
