"""Fetch requests from arrival to answer: their sessions, their reads, and the end of their connection."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID, MetadataCache
from holdfast_log.broker.replication.fetch_sessions import FINAL_EPOCH, FIRST_EPOCH, NO_SESSION
from holdfast_log.broker.replication.long_fetch import BeginTurns, LongFetch, ReadingTurns
from holdfast_log.broker.replication.one_fetch import AnswerRead, OneFetch, is_complete, read_kept, read_one
from holdfast_log.broker.replication.partition import CONSUMER_ID
from holdfast_log.broker.replication.plain_fetch import PlainFetch, must_wait
from holdfast_log.broker.replication.reads import (
    NO_REPLICA,
    SMALL_BYTES,
    AnswerReads,
    Read,
    ReadLimits,
    admit_again,
    cold_slices,
    copy_small_records,
    read_all,
    record_given,
    refuse_damaged,
    warm,
)
from holdfast_log.broker.replication.replica_choice import ConsumerPlace, ReplicaChoice, offsets_of
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.session_fetch import SessionFetch
from holdfast_log.broker.replication.session_partitions import FetchReader, FetchSession, SessionPartition
from holdfast_log.broker.replication.several_fetch import SeveralFetch, SeveralFetches
from holdfast_log.broker.replication.usual_fetch import KeptFetch, MayReadTopic, UsualFetches
from holdfast_log.broker.workers import Workers
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.frames import copy_small
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_SOME_CONSUMER = FetchReader("", CONSUMER_ID)

MayRead: TypeAlias = "Callable[[str], bool] | None"
"""Whether a reader may read the topic of a name. None: it may read all topics."""


NAMED_AT_ONCE = 200
"""Maximum number of partitions that a session of many takes over in one turn: each takes 1 to 2 µs."""


class AnswersKept(NamedTuple):
    """Return what answers a usual fetch that has waited and is not usual any more: of one partition, or of
    several and in a session with its id. They are asked before its wait ends, which forgets the fetch."""

    one: Callable[[KeptFetch], AnswerRead]
    session: Callable[[KeptFetch | SeveralFetch], AnswerReads]


class Fetches:
    """The fetches of all connections.

    `workers` read slices ahead that are not in memory: sending those would hold up the reactor.
    """

    def __init__(
        self, replicas: Replicas, metadata: MetadataCache, workers: Workers, choice: ReplicaChoice
    ) -> None:
        self.choice = choice
        self._replicas = replicas
        self._metadata = metadata
        self._workers = workers

    def begin(
        self,
        request: FetchRequest,
        reader: FetchReader,
        limits: ReadLimits,
        answer: AnswerReads,
        may_read: MayRead,
        *,
        by_ids: bool,
        place: ConsumerPlace | None = None,
    ) -> bool:
        """Carry out a fetch; `answer` is called once, now or later. With `by_ids` the request names topics by
        their ids. Of topics that the reader may not read only that is answered. `place` is that of a consumer
        that may read from followers.

        Returns whether `connection_closed` must be called when the reader's connection closes.

        Raises BrokerError as `FetchSessions.use` and `FetchSessions.name` do; INVALID_REQUEST for a consumer
        that names too many partitions.
        """
        replicas, connection = self._replicas, reader.connection_id
        if may_read is not None:
            answer = functools.partial(_answer_judged, may_read, answer)
        if reader.replica_id < 0:
            self._check_size(request, reader)
        if reader.replica_id >= 0:
            # Answers leave in the order of requests, so this one's would wait for an earlier fetch that waits
            # for records. A follower that asks again, for other partitions, must not wait for those.
            replicas.readers.expire_all_of(connection)
            replicas.followers.expire_all_of(connection)
        session = None
        if request.session_epoch != FINAL_EPOCH or request.session_id != NO_SESSION:
            session = self._session(request, reader, by_ids=by_ids)
        if session is not None:
            give = functools.partial(self._give, reader, answer)
            locate = functools.partial(self._locate, may_read, request.isolation_level, place)
            is_full = request.session_epoch == FIRST_EPOCH
            SessionFetch(replicas, session, limits, locate, give, is_full=is_full).begin()
            return True
        reads = list(self._wanted(request, connection, may_read, place, by_ids=by_ids))
        if reader.replica_id >= 0:
            self._record(reads, reader)
        total = read_all(replicas, reads, limits.max_bytes, reader.replica_id)
        if not must_wait(reads, total, limits):
            self._give(reader, answer, NO_SESSION, reads)
            return False
        give = functools.partial(self._give, reader, answer)
        PlainFetch(replicas, reads, total, limits, reader.replica_id, give).wait(connection)
        return True

    async def begin_long(
        self,
        request: FetchRequest,
        reader: FetchReader,
        limits: ReadLimits,
        answer: AnswerReads,
        may_read: MayRead,
        begin_turns: BeginTurns,
        gone: Callable[[Failure], None],
        *,
        by_ids: bool,
        place: ConsumerPlace | None = None,
    ) -> None:
        """Carry out a consumer's fetch of many partitions in turns of the reactor, as `begin` otherwise;
        `connection_closed` must be called when the reader's connection closes. `gone` is called if it closes
        while a fetch that has waited takes its turns."""
        if may_read is not None:
            answer = functools.partial(_answer_judged, may_read, answer)
        self._check_size(request, reader)
        session = None
        with begin_turns() as turns:
            await turns.other_turn()  # than that in which the request was decoded
            if request.session_epoch != FINAL_EPOCH or request.session_id != NO_SESSION:
                session = self._used(request, reader, by_ids=by_ids)
            if session is not None:
                await self._name_in_turns(session, request, turns, by_ids=by_ids)
            give = functools.partial(self._give, reader, answer)
            if session is None:
                wanted = self._wanted(request, reader.connection_id, may_read, place, by_ids=by_ids)
                fetch = LongFetch(self._replicas, limits, give, begin_turns, gone)
                await fetch.begin(wanted, reader.connection_id, turns)
                return
            locate = functools.partial(self._locate, may_read, request.isolation_level, place)
            is_full = request.session_epoch == FIRST_EPOCH
            first = SessionFetch(self._replicas, session, limits, locate, give, is_full=is_full)
            if is_full:
                await first.begin_in_turns(turns)
            else:
                first.begin()

    def _wanted(
        self,
        request: FetchRequest,
        connection: int,
        may_read: MayRead,
        place: ConsumerPlace | None,
        *,
        by_ids: bool,
    ) -> Iterator[Read]:
        """The reads of a fetch without a session, in the order of the request."""
        for topic in request.topics:
            for wanted in topic.partitions:
                if by_ids:
                    read = self._read_by_id(topic.topic_id, wanted, connection)
                else:
                    read = Read(topic.topic, wanted, connection=connection)
                read.isolation = request.isolation_level
                if may_read is not None and read.topic and not may_read(read.topic):
                    read.error = _may_not_read()
                if place is not None:
                    self._place(read, place)
                yield read

    def begin_one(
        self,
        request: FetchRequest,
        max_bytes: int,
        connection: int,
        answer: AnswerRead,
        may_read: MayRead,
        *,
        by_ids: bool,
        place: ConsumerPlace | None = None,
    ) -> bool:
        """Carry out a consumer's fetch of one partition without a session; as `begin` otherwise. Raises
        nothing."""
        replicas, topic = self._replicas, request.topics[0]
        wanted = topic.partitions[0]
        if by_ids:
            read = self._read_by_id(topic.topic_id, wanted, connection)
        else:
            read = Read(topic.topic, wanted, ZERO_ID, None, None, connection)
        read.isolation = request.isolation_level
        if may_read is not None and read.topic and not may_read(read.topic):
            read.error = _may_not_read()
        if place is not None:
            self._place(read, place)
        if may_read is not None:
            answer = functools.partial(_answer_one_judged, may_read, answer)
        min_bytes = request.min_bytes
        if max_bytes < min_bytes:
            min_bytes = max_bytes
        if wanted.partition_max_bytes < max_bytes:
            max_bytes = wanted.partition_max_bytes
        is_read = read.error is None and read.preferred == NO_REPLICA
        partition = read_one(replicas, read, max_bytes) if is_read else None
        if partition is None or request.max_wait_ms <= 0 or is_complete(read, min_bytes):
            self.give_one(answer, read)
            return False
        give = functools.partial(self.give_one, answer)
        replicas.readers.add(
            OneFetch(replicas, partition, read, max_bytes, min_bytes, give), request.max_wait_ms
        )
        return True

    def usual(
        self,
        max_bytes: int,
        closed: Callable[[Any], None],
        answers: AnswersKept,
        may_read: MayReadTopic | None = None,
    ) -> UsualFetches:
        """The usual fetches, in compiled calls; see `UsualFetches`. `answers` are for those that become
        unusual."""
        replicas, metadata = self._replicas, self._metadata

        def unusual(kept: KeptFetch, ends: bool) -> bool:
            return self._read_for(kept, answers, ends=ends)

        def unusual_several(kept: SeveralFetch, key: Hashable | None) -> bool:
            return self._read_for_several(kept, answers, key)

        partitions_max = replicas.sessions.size_max(_SOME_CONSUMER)
        several = SeveralFetches(
            replicas, metadata, max_bytes, partitions_max, closed, unusual_several, may_read
        )
        return UsualFetches(replicas, metadata, max_bytes, closed, unusual, several, may_read)

    def _read_for(self, kept: KeptFetch, answers: AnswersKept, *, ends: bool) -> bool:
        """Read for a fetch that is not usual any more, and answer it if it is complete or `ends`."""
        session = kept.session
        if session is not None:
            limits = ReadLimits(kept.min_bytes, kept.max_bytes, 0)
            give = functools.partial(self._give, session.reader, answers.session(kept))
            # Where clients have rights, no fetch that waits is usual.
            locate = functools.partial(self._locate, None, kept.isolation, None)
            fetch = SessionFetch(self._replicas, session, limits, locate, give, is_full=False)
            return fetch.read_again(ends=ends)
        read = read_kept(self._replicas, kept)
        if not ends and read.read is not None and not is_complete(read, kept.min_bytes):
            kept.count(read.read.end_offset, read.size)
            return False
        self.give_one(answers.one(kept), read)
        return True

    def _read_for_several(self, kept: SeveralFetch, answers: AnswersKept, key: Hashable | None) -> bool:
        """As `_read_for`. Only the partition of `key` is read unless that completes the fetch; None: its wait
        ends."""
        replicas, wanted = self._replicas, kept.reads
        limits = ReadLimits(wanted.min_bytes, wanted.max_bytes, 0)
        answer = answers.session(kept)
        fetch: SessionFetch | PlainFetch
        if wanted.session is not None:
            give = functools.partial(self._give, wanted.session.reader, answer)
            locate = functools.partial(self._locate, None, wanted.isolation, None)
            fetch = SessionFetch(replicas, wanted.session, limits, locate, give, is_full=False)
        else:
            give = functools.partial(self._give, _SOME_CONSUMER, answer)
            reads = _reads_of(kept)
            fetch = PlainFetch(replicas, reads, 0, limits, CONSUMER_ID, give)
        if key is not None:
            return fetch.look(key)
        fetch.finish()
        return True

    def give_one(self, answer: AnswerRead, read: Read) -> None:
        """Answer a fetch of one partition with what was read, once that is in memory."""
        found = read.read
        if found is not None and (records := found.records) is not None:
            if found.unchecked is not None:
                self._warm([read], lambda: answer(read), is_consumer=True)
                return
            if records.length <= SMALL_BYTES and records.data is None:
                copy_small(records, SMALL_BYTES)
        answer(read)

    def _check_size(self, request: FetchRequest, reader: FetchReader) -> None:
        size = sum(len(topic.partitions) for topic in request.topics)
        size_max = self._replicas.sessions.size_max(reader)
        if size > size_max:
            text = f"the fetch names {size} partitions: fetch in parts (fetch.partitions.max={size_max})"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)

    def judged_again(self) -> Iterator[None]:
        """Have all fetches of consumers judged again, since the rules have changed: their waits end, and
        their sessions look at all partitions. Pauses after each reader."""
        for session in self._replicas.sessions.of_consumers():
            session.stir_all()
            yield
        for connection_id in self._replicas.readers.owners():
            self._replicas.readers.expire_all_of(connection_id)
            yield

    def connection_closed(self, connection_id: int) -> None:
        """Forget the waiting fetches and the sessions of a connection."""
        self._replicas.readers.cancel_all_of(connection_id)
        self._replicas.followers.cancel_all_of(connection_id)
        self._replicas.sessions.close_all_of(connection_id)

    # -- sessions ----------------------------------------------------------------------------------------

    def _session(self, request: FetchRequest, reader: FetchReader, *, by_ids: bool) -> FetchSession | None:
        """The fetch's session, opened or continued, with the partitions that the request names and without
        those that it forgets; None for a fetch without one."""
        session = self._used(request, reader, by_ids=by_ids)
        if session is not None:
            self._replicas.sessions.name(session, _named(request, by_ids=by_ids))
            self._forget(session, request, by_ids=by_ids)
        return session

    async def _name_in_turns(
        self, session: FetchSession, request: FetchRequest, turns: ReadingTurns, *, by_ids: bool
    ) -> None:
        """What `_session` does with the partitions of the request, `NAMED_AT_ONCE` in a turn. Raises
        BrokerError FETCH_SESSION_ID_NOT_FOUND if the session has to make room for another one meanwhile."""
        sessions, named = self._replicas.sessions, _named(request, by_ids=by_ids)
        while part := list(islice(named, NAMED_AT_ONCE)):
            sessions.name(session, part)
            await turns.other_turn()
            if not sessions.is_open(session):
                text = "the fetch session was closed to make room for others"
                raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, text)
        self._forget(session, request, by_ids=by_ids)

    def _used(self, request: FetchRequest, reader: FetchReader, *, by_ids: bool) -> FetchSession | None:
        """The fetch's session, opened or continued, as it was; None for a fetch without one."""
        epoch = request.session_epoch
        sessions, now_ms = self._replicas.sessions, self._replicas.monotonic_ms()
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id, reader)
            if epoch == FINAL_EPOCH:
                return None
            partitions = sum(len(topic.partitions) for topic in request.topics)
            return sessions.open(reader, by_ids=by_ids, partitions=partitions, now_ms=now_ms)
        return sessions.use(request.session_id, epoch, reader, by_ids=by_ids, now_ms=now_ms)

    def _forget(self, session: FetchSession, request: FetchRequest, *, by_ids: bool) -> None:
        self._replicas.sessions.forget(
            session,
            (
                (topic.topic_id if by_ids else topic.topic, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ),
        )

    def _place(self, read: Read, place: ConsumerPlace) -> None:
        """Have a consumer read from this broker though it follows, or send it to a nearer follower."""
        read.from_follower = True
        partition = self._replicas.find(read.topic, read.wanted.partition)
        if partition is None or read.error is not None:
            return
        preferred = self.choice.preferred(partition, read.wanted, place)
        if preferred is not None:
            read.preferred, read.read = preferred, offsets_of(partition)

    def _locate(
        self,
        may_read: MayRead,
        isolation: int,
        place: ConsumerPlace | None,
        member: SessionPartition,
        connection: int,
    ) -> Read:
        topic, index = member.named
        if isinstance(topic, UUID):
            read = self._read_by_id(topic, member.wanted, connection, member)
        else:
            read = Read(topic, member.wanted, member=member, connection=connection)
        read.isolation = isolation
        if read.topic and (member.key is None or member.key.topic != read.topic):
            self._replicas.sessions.watch(member, TopicPartition(read.topic, index))
        if may_read is not None and read.topic and not may_read(read.topic):
            read.error = _may_not_read()
        if place is not None:
            self._place(read, place)
        return read

    # -- reads -------------------------------------------------------------------------------------------

    def _record(self, reads: Sequence[Read], reader: FetchReader) -> None:
        """Record a follower's position in each partition."""
        for read in reads:
            if read.error is None:
                read.error = self._replicas.try_record_fetch(
                    read.topic, read.wanted, reader.replica_id, reader.broker_epoch
                )

    def _read_by_id(
        self, topic: UUID, wanted: FetchPartition, connection: int, member: SessionPartition | None = None
    ) -> Read:
        name = self._metadata.name_of(topic)
        if name is None:
            return Read("", wanted, topic, member, BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
        read = Read(name, wanted, topic, member, connection=connection)
        partition = self._replicas.find(name, wanted.partition)
        if partition is not None and topic != partition.topic_id != ZERO_ID:
            # The topic was deleted and created again; only one of the two changes has reached this broker.
            read.error = BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return read

    def _give(self, reader: FetchReader, answer: AnswerReads, session_id: int, reads: Sequence[Read]) -> None:
        if reader.replica_id >= 0:
            record_given(self._replicas, reads)
        for read in reads:
            if read.read is not None and read.read.unchecked is not None:
                self._warm(reads, lambda: answer(session_id, reads), is_consumer=reader.replica_id < 0)
                return
        copy_small_records(reads)
        answer(session_id, reads)

    def _warm(self, reads: Sequence[Read], then: Callable[[], None], *, is_consumer: bool) -> None:
        """Have a worker read what is not in memory, and answer afterwards."""
        cold = cold_slices(reads)
        warmed = self._workers.run(warm, cold)
        warmed.addCallback(lambda damaged: refuse_damaged(self._replicas, reads, damaged))
        if is_consumer:
            warmed.addCallback(lambda _: admit_again(self._replicas, reads))
        warmed.addErrback(lambda failure: _log.error("Reading ahead failed: %s", failure.value))
        warmed.addCallback(lambda _: then())


def _named(request: FetchRequest, *, by_ids: bool) -> Iterator[tuple[UUID | str, FetchPartition]]:
    """The partitions that a fetch names, each after the id or the name of its topic."""
    for topic in request.topics:
        for wanted in topic.partitions:
            yield topic.topic_id if by_ids else topic.topic, wanted


def _reads_of(kept: SeveralFetch) -> list[Read]:
    """The reads of a fetch without a session that is not usual any more."""
    reads = []
    for topic, topic_id, index, leader_epoch, offset, max_bytes in kept.reads.rows():
        wanted = FetchPartition(
            partition=index,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        read = Read(topic, wanted, topic_id, connection=kept.connection.id, isolation=kept.reads.isolation)
        reads.append(read)
    return reads


def _may_not_read() -> BrokerError:
    return BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _answer_judged(
    may_read: Callable[[str], bool], answer: AnswerReads, session_id: int, reads: Sequence[Read]
) -> None:
    """Answer a fetch that may have waited: what the reader may not read any more is left out."""
    for read in reads:
        if _is_denied(may_read, read) and read.member is not None:
            read.member.fail()
    answer(session_id, reads)


def _answer_one_judged(may_read: Callable[[str], bool], answer: AnswerRead, read: Read) -> None:
    _is_denied(may_read, read)
    answer(read)


def _is_denied(may_read: Callable[[str], bool], read: Read) -> bool:
    """Whether the reader may not read what has been read for it, which is then refused."""
    if read.read is None or may_read(read.topic):
        return False
    read.fail(_may_not_read())
    return True
