"""Fetch (key 1): batches from given offsets on, as soon as there are `min_bytes` of them or `max_wait_ms` is
over.

Consumers see what is below the high watermark; followers (a replica id of 0 or more) see all, and what they
ask for tells the leader how far they are. Records leave as slices of the log's files and are never read here.

Versions: up to 12 topics go by name, from 13 on by id (KIP-516); from 7 on a reader may have a session, in
which it names only what changes and is answered only what is new (KIP-227); from 12 on one that names the
epoch it read last is told where its log parts from the leader's (KIP-595); from 15 on a follower's id travels
in a tagged field. A session ends with the connection that it was last used through.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from broker.call import Handler, RequestContext
from broker.metadata import ZERO_ID, MetadataCache
from broker.network.connection import ServerConnection
from broker.replication.admission import NO_CONNECTION
from broker.replication.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionHolder,
    SessionPartition,
)
from broker.replication.partition import PartitionRead
from broker.replication.reads import Read, ReadLimits, cold_slices, fetch, record_given, warm
from broker.replication.replicas import Replicas
from broker.replication.session_reads import SessionFetch
from broker.replication.waiting import Parked
from broker.workers import Workers
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from protocol.messages.leader_hint import LeaderIdAndEpoch

_log = logging.getLogger(__name__)

_FIRST_VERSION_WITH_IDS = 13
_FIRST_VERSION_WITH_REPLICA_STATE = 15
_FIRST_VERSION_WITH_LEADER = 12
# What most answers say nothing of, one object for all of them: replaced, never changed.
_NO_EPOCH_END, _NO_LEADER, _NO_SNAPSHOT = DivergingEpoch(), LeaderIdAndEpoch(), SnapshotId()
_NOT_A_READER = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OWNERSHIP_FENCED)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(eq=False)
class FetchHandler(Handler[FetchRequest, FetchResponse]):
    """`max_bytes` bounds every answer (`fetch.max.bytes`)."""

    request = FetchRequest
    replicas: Replicas
    metadata: MetadataCache
    workers: Workers
    max_bytes: int
    _waiting: dict[int, dict[Parked, None]] = field(init=False, default_factory=dict)
    """By connection, the fetches that wait."""

    def handle(self, call: RequestContext, request: FetchRequest) -> None:
        connection = call.connection
        connection_id = NO_CONNECTION if connection is None else connection.id
        with_state = call.version >= _FIRST_VERSION_WITH_REPLICA_STATE
        replica_id = request.replica_state.replica_id if with_state else request.replica_id
        if replica_id >= 0:
            # Answers leave in order: this one's would wait for an earlier fetch that waits for records. A
            # follower that asks again, for other partitions, is not to be kept waiting for them.
            for earlier in list(self._waiting.get(connection_id, ())):
                earlier.expire()
        max_bytes = min(max(request.max_bytes, 0), self.max_bytes)
        limits = ReadLimits(min(request.min_bytes, max_bytes), max_bytes, request.max_wait_ms)
        parked: Parked | None = None

        def answered() -> None:
            if parked is not None:
                self._waiting.get(connection_id, {}).pop(parked, None)

        session = None
        if request.session_epoch != FINAL_EPOCH or request.session_id != NO_SESSION:
            reader = SessionHolder(
                call.principal, replica_id, request.replica_state.replica_epoch, connection_id
            )
            session = self._session(call, request, reader)
        if session is None:
            parked = self._fetch_all(call, request, replica_id, connection_id, limits, answered)
        else:
            is_full = request.session_epoch == FIRST_EPOCH
            parked = self._fetch_news(call, session, limits, answered, is_full=is_full)
        if parked is not None and not parked.is_over:
            self._waiting.setdefault(connection_id, {})[parked] = None
        if connection is not None and (parked is not None or session is not None):
            connection.add_close_callback(self._connection_closed)

    def _connection_closed(self, connection: ServerConnection) -> None:
        for parked in self._waiting.pop(connection.id, ()):
            parked.cancel()
        self.replicas.sessions.close_all_of(connection.id)

    # -- sessions ----------------------------------------------------------------------------------------

    def _session(
        self, call: RequestContext, request: FetchRequest, reader: SessionHolder
    ) -> FetchSession | None:
        """The session of the request, as the request leaves it; None where there is none."""
        epoch = request.session_epoch
        sessions, now_ms = self.replicas.sessions, self.replicas.monotonic_ms()
        by_ids = call.version >= _FIRST_VERSION_WITH_IDS
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id, reader.principal)
            if epoch == FINAL_EPOCH:
                return None
            partitions = sum(len(topic.partitions) for topic in request.topics)
            session = sessions.open(reader, by_ids=by_ids, partitions=partitions, now_ms=now_ms)
            if session is None:
                return None
        else:
            session = sessions.use(request.session_id, epoch, reader, by_ids=by_ids, now_ms=now_ms)
        sessions.name(
            session,
            (
                (topic.topic_id if by_ids else topic.topic, wanted)
                for topic in request.topics
                for wanted in topic.partitions
            ),
        )
        sessions.forget(
            session,
            (
                (topic.topic_id if by_ids else topic.topic, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ),
        )
        return session

    def _fetch_news(
        self,
        call: RequestContext,
        session: FetchSession,
        limits: ReadLimits,
        answered: Callable[[], None],
        *,
        is_full: bool,
    ) -> Parked | None:
        sessions = self.replicas.sessions

        def answer() -> None:
            answered()
            session_id = session.id if sessions.is_open(session) else NO_SESSION
            self._answer(call, session_id, fetched.news(), session.reader.replica_id)

        locate = functools.partial(self._located, session.reader.connection_id)
        fetched = SessionFetch(self.replicas, session, limits, locate, answer, is_full=is_full)
        return fetched.begin()

    def _located(self, connection: int, member: SessionPartition) -> Read:
        topic, index = member.named
        if isinstance(topic, UUID):
            read = self._by_id(topic, member.wanted, connection, member)
        else:
            read = Read(topic, member.wanted, member=member, connection=connection)
        if read.topic:
            self.replicas.sessions.watch(member, (read.topic, index))
        return read

    # -- without a session -------------------------------------------------------------------------------

    def _fetch_all(
        self,
        call: RequestContext,
        request: FetchRequest,
        replica_id: int,
        connection_id: int,
        limits: ReadLimits,
        answered: Callable[[], None],
    ) -> Parked | None:
        by_ids = call.version >= _FIRST_VERSION_WITH_IDS
        reads = [
            self._by_id(topic.topic_id, wanted, connection_id)
            if by_ids
            else Read(topic.topic, wanted, connection=connection_id)
            for topic in request.topics
            for wanted in topic.partitions
        ]
        if replica_id >= 0:
            for read in reads:
                if read.error is None:
                    read.error = self.replicas.try_record_fetch(
                        read.topic, read.wanted, replica_id, request.replica_state.replica_epoch
                    )

        def answer() -> None:
            answered()
            self._answer(call, NO_SESSION, reads, replica_id)

        return fetch(self.replicas, reads, limits, replica_id, answer)

    def _by_id(
        self, topic_id: UUID, wanted: FetchPartition, connection: int, member: SessionPartition | None = None
    ) -> Read:
        name = self.metadata.name_of(topic_id)
        if name is None:
            return Read("", wanted, topic_id, member, BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
        read = Read(name, wanted, topic_id, member, connection=connection)
        partition = self.replicas.find(name, wanted.partition)
        if partition is not None and topic_id != partition.topic_id != ZERO_ID:
            # The topic is another one of that name here, of which the controller has told only one half.
            read.error = BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return read

    # -- answers -----------------------------------------------------------------------------------------

    def _answer(self, call: RequestContext, session_id: int, reads: list[Read], replica_id: int) -> None:
        if replica_id >= 0:
            record_given(self.replicas, reads)
        response = self._response(call, session_id, reads)
        cold = cold_slices(reads)
        if not cold:
            call.answer(response)
            return
        warmed = self.workers.run(warm, cold)
        warmed.addErrback(lambda failure: _log.error("Reading ahead failed: %s", failure.value))
        warmed.addCallback(lambda _: call.answer(response))

    def _response(self, call: RequestContext, session_id: int, reads: Iterable[Read]) -> FetchResponse:
        topics: list[FetchableTopicResponse] = []
        topic: FetchableTopicResponse | None = None
        for read in reads:
            # Partitions keep their order, so a topic may come more than once.
            if topic is None or topic.topic != read.topic or topic.topic_id != read.topic_id:
                topic = FetchableTopicResponse(topic=read.topic, topic_id=read.topic_id, partitions=[])
                topics.append(topic)
            topic.partitions.append(self._partition(call, read))
        return FetchResponse(throttle_time_ms=0, session_id=session_id, responses=topics)

    def _partition(self, call: RequestContext, read: Read) -> PartitionData:
        if read.error is not None:
            return self._failed_partition(call, read, read.error)
        assert read.read is not None
        found: PartitionRead = read.read
        data = PartitionData(
            partition_index=read.wanted.partition,
            error_code=0,
            high_watermark=found.high_watermark,
            last_stable_offset=found.high_watermark,
            log_start_offset=found.log_start_offset,
            diverging_epoch=_NO_EPOCH_END,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            records=b"" if found.records is None else found.records,
        )
        if found.diverging is not None:
            epoch, end_offset = found.diverging
            data.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end_offset)
        return data

    def _failed_partition(self, call: RequestContext, read: Read, error: BrokerError) -> PartitionData:
        data = PartitionData(
            partition_index=read.wanted.partition, error_code=error.code, high_watermark=-1, records=b""
        )
        if error.code in _NOT_A_READER:
            data.error_message = error.message
        if call.version >= _FIRST_VERSION_WITH_LEADER and error.code in _MOVED:
            known = self.replicas.known_leader(read.topic, read.wanted.partition)
            if known is not None:
                leader, epoch = known
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower whose log does not join on to this one begins anew from here.
            partition = self.replicas.find(read.topic, read.wanted.partition)
            if partition is not None:
                data.log_start_offset = partition.log.log_start_offset
        return data

    def failed(self, call: RequestContext, request: FetchRequest, error: BrokerError) -> FetchResponse | None:
        if call.version >= 7:
            return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])
        return FetchResponse(
            throttle_time_ms=0,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._failed_partition(call, Read(topic.topic, wanted), error)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
