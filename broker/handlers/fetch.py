"""Fetch (key 1): batches from given offsets on, as soon as there are `min_bytes` of them or `max_wait_ms` has
passed.

Consumers see records below the high watermark; with isolation level 1 below the last stable offset, together
with the aborted transactions among them. Followers (a replica id of 0 or more) see all, and the leader
learns their position from their fetches. Records leave as slices of the log's files; only those of a few
kilobytes are read here, which is cheaper.

Versions: requests name topics up to version 12, and topic ids from 13 on (KIP-516). From 7 on a reader may
have a session, whose requests name only changes and whose answers hold only news (KIP-227); it ends when the
connection that last used it closes. From 11 on a consumer names its rack, may be told to read from a follower
there, and may read from one, where `replica.selector.class` lets it (KIP-392). From 12 on a reader that names
the epoch it last read learns where its log diverges from the leader's (KIP-595). From 15 on a follower's id
is in a tagged field.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Annotated, NamedTuple

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.replication import usual_fetch
from holdfast_log.broker.replication.admission import NO_CONNECTION
from holdfast_log.broker.replication.fetch_sessions import FINAL_EPOCH, NO_SESSION
from holdfast_log.broker.replication.fetches import AnswersKept, Fetches, MayRead
from holdfast_log.broker.replication.long_fetch import PART_READS
from holdfast_log.broker.replication.one_fetch import AnswerRead
from holdfast_log.broker.replication.partition import CONSUMER_ID
from holdfast_log.broker.replication.reads import NO_REPLICA, AnswerReads, Read, ReadLimits
from holdfast_log.broker.replication.replica_choice import ConsumerPlace
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.session_partitions import FetchReader
from holdfast_log.broker.replication.several_fetch import SeveralFetch
from holdfast_log.broker.replication.usual_fetch import KeptFetch
from holdfast_log.broker.requests.answers import AnswerAbandoned, LongAnswers
from holdfast_log.broker.requests.calls import call_of
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    Handler,
    MayDo,
    RequestContext,
    Shortcut,
    check_replica,
)
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.settings.rows import BROKER_ROWS
from holdfast_log.protocol import compiled
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.fetch_codec import records_response
from holdfast_log.protocol.messages.fetch import (
    NO_DIVERGENCE,
    NO_LEADER,
    NO_SNAPSHOT,
    AbortedTransaction,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch

TURN_PARTITIONS = 200
"""Partitions of a consumer's fetch that are more than a turn's work: each takes about ten microseconds to be
read, and as many to be answered."""

TURN_NAME_BYTES = 64 * 1024
"""Characters in the names of a fetch's topics that are: each name is copied several times."""

_TOPIC_OF = attrgetter("topic", "topic_id")
_FIRST_VERSION_WITH_ERROR = 7
_FIRST_VERSION_WITH_RACK = 11
_FIRST_VERSION_WITH_IDS = 13
_FIRST_VERSION_WITH_REPLICA_STATE = 15
_FIRST_VERSION_WITH_LEADER = 12
_NOT_A_READER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.OWNERSHIP_FENCED,
    ErrorCode.OWNERSHIP_DETACHED,
)
_SOME_FETCH = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class FetchRequestSettings:
    """How many bytes of records a response may have, whatever the request asks for."""

    max_bytes: Annotated[int, "fetch.max.bytes"]


class _Terms(NamedTuple):
    """For whom and within which limits a fetch is carried out, and what answers it."""

    reader: FetchReader
    limits: ReadLimits
    answer: AnswerReads
    may_read: MayRead
    place: ConsumerPlace | None


@dataclass(eq=False)
class FetchHandler(Handler[FetchRequest, FetchResponse]):
    """A consumer's fetch of many partitions (`TURN_PARTITIONS` or more) takes many turns of the reactor: in
    each a few partitions are read, or answered."""

    request = FetchRequest
    elements_max = ANY_ELEMENTS
    fetches: Fetches
    replicas: Replicas
    settings: FetchRequestSettings
    quotas: ClientQuotas
    answers: LongAnswers

    def shortcut(self) -> Shortcut | None:
        if self.fetches.choice.is_on or not usual_fetch.is_compiled():
            return None  # It knows no racks, and no followers.
        answers = AnswersKept(self._answer_kept, self._answer_kept_session)
        return self.fetches.usual(self.settings.max_bytes, self._connection_closed, answers).begin

    def judged_shortcut(self, may: MayDo) -> Shortcut | None:
        if self.fetches.choice.is_on or not usual_fetch.is_compiled():
            return None
        read, kind = AclOperation.READ, AclResource.TOPIC

        def may_read(connection: ServerConnection, topic: str) -> bool:
            return may(connection, read, kind, topic)

        answers = AnswersKept(self._answer_kept, self._answer_kept_session)
        return self.fetches.usual(self.settings.max_bytes, self._connection_closed, answers, may_read).begin

    def handle(self, context: RequestContext, request: FetchRequest) -> None:
        with_state = context.version >= _FIRST_VERSION_WITH_REPLICA_STATE
        replica_id = request.replica_state.replica_id if with_state else request.replica_id
        check_replica(context, replica_id)
        replica_id = max(CONSUMER_ID, replica_id)  # Every other reader is admitted like a consumer.
        if replica_id < 0 and _is_long(request):
            ensureDeferred(self._begin_long(context, request)).addErrback(_gone)
        else:
            self._begin(context, request, replica_id)

    async def _begin_long(self, context: RequestContext, request: FetchRequest) -> None:
        """Carry out a consumer's fetch of many partitions in turns."""
        connection = context.connection
        terms = self._terms(context, request, CONSUMER_ID)
        if connection is not None:
            connection.add_close_callback(self._connection_closed)
        try:
            await self.fetches.begin_long(
                request,
                terms.reader,
                terms.limits,
                terms.answer,
                terms.may_read,
                functools.partial(self.answers.begin, context, FetchResponse),
                _gone,
                by_ids=context.version >= _FIRST_VERSION_WITH_IDS,
                place=terms.place,
            )
        except AnswerAbandoned:
            raise
        except BrokerError as error:
            if context.version >= _FIRST_VERSION_WITH_ERROR:
                context.answer(self.failed(context, request, error))
                return
            refused = (
                Read(topic.topic, wanted, topic.topic_id, error=error)
                for topic in request.topics
                for wanted in topic.partitions
            )
            await self._send_later(context, NO_SESSION, refused, True)

    def _begin(self, context: RequestContext, request: FetchRequest, replica_id: int) -> None:
        connection = context.connection
        by_ids = context.version >= _FIRST_VERSION_WITH_IDS
        if (
            request.session_epoch == FINAL_EPOCH
            and request.session_id == NO_SESSION
            and replica_id < 0
            and connection is not None
            and not self.quotas.is_enforced
            and len(request.topics) == 1
            and len(request.topics[0].partitions) == 1
        ):
            is_kept = self.fetches.begin_one(
                request,
                min(max(request.max_bytes, 0), self.settings.max_bytes),
                connection.id,
                functools.partial(self._answer_one, context),
                self._may_read(context) if context.is_judged else None,
                by_ids=by_ids,
                place=self._place(context, request) if self.fetches.choice.is_on else None,
            )
        else:
            terms = self._terms(context, request, replica_id)
            is_kept = self.fetches.begin(
                request,
                terms.reader,
                terms.limits,
                terms.answer,
                terms.may_read,
                by_ids=by_ids,
                place=terms.place,
            )
        if is_kept and connection is not None:
            connection.add_close_callback(self._connection_closed)

    def _terms(self, context: RequestContext, request: FetchRequest, replica_id: int) -> _Terms:
        connection = context.connection
        max_bytes = min(max(request.max_bytes, 0), self.settings.max_bytes)
        may_read = self._may_read(context) if context.is_judged else None
        place = None
        if self.fetches.choice.is_on and replica_id < 0 and connection is not None:
            place = self._place(context, request)
        answer: Callable[[RequestContext, int, Sequence[Read]], None] = self._answer
        if replica_id >= 0:
            answer = self._answer_follower
        elif self.quotas.is_enforced and connection is not None:
            quota_bytes = self.quotas.fetch_bytes_max(connection, context.client_id)
            if quota_bytes is not None:
                max_bytes = min(max_bytes, quota_bytes)
                answer = self._answer_within_quota
        reader = FetchReader(
            context.principal,
            replica_id,
            request.replica_state.replica_epoch,
            NO_CONNECTION if connection is None else connection.id,
        )
        limits = ReadLimits(min(request.min_bytes, max_bytes), max_bytes, request.max_wait_ms)
        return _Terms(reader, limits, functools.partial(answer, context), may_read, place)

    def _may_read(self, context: RequestContext) -> MayRead:
        return functools.partial(context.may, AclOperation.READ, AclResource.TOPIC)

    def _place(self, context: RequestContext, request: FetchRequest) -> ConsumerPlace | None:
        """The place of a consumer that knows of racks."""
        if context.version < _FIRST_VERSION_WITH_RACK:
            return None
        return ConsumerPlace(request.rack_id, context.listener or "")

    def _connection_closed(self, connection: ServerConnection) -> None:
        self.fetches.connection_closed(connection.id)

    def _answer_within_quota(self, context: RequestContext, session_id: int, reads: Sequence[Read]) -> None:
        """Answer a client that has a quota: without records while it is over the quota, and else with all of
        them. The client is then throttled for the time that they take it over the quota."""
        connection, key, client_id = context.connection, QuotaKey.FETCH, context.client_id
        assert connection is not None
        due_ms = self.quotas.due_ms(key, connection, client_id)
        if due_ms:
            context.throttle(key, due_ms)
            self._respond(context, session_id, reads, with_records=False)
            return
        size = sum(read.size for read in reads)
        context.throttle(key, self.quotas.charge(key, connection, client_id, size))
        self._answer(context, session_id, reads)

    def _answer_follower(self, context: RequestContext, session_id: int, reads: Sequence[Read]) -> None:
        traffic = self.replicas.traffic
        for read in reads:
            if read.size:
                traffic.find(read.topic).replication_bytes_out += read.size
        self._respond(context, session_id, reads)

    def _answer(self, context: RequestContext, session_id: int, reads: Sequence[Read]) -> None:
        """Answer a consumer, and count what it gets."""
        traffic = self.replicas.traffic
        for read in reads:
            counts = traffic.find(read.topic)
            found = read.read
            if found is None:
                counts.failed_reads += 1
                continue
            counts.reads += 1
            if found.records is not None:
                counts.bytes_out += found.records.length
        self._respond(context, session_id, reads)

    def _respond(
        self, context: RequestContext, session_id: int, reads: Sequence[Read], *, with_records: bool = True
    ) -> None:
        if context.connection is None or _are_few(reads):
            self._send(context, session_id, reads, with_records)
        else:
            ensureDeferred(self._send_later(context, session_id, reads, with_records)).addErrback(_gone)

    async def _send_later(
        self, context: RequestContext, session_id: int, reads: Iterable[Read], with_records: bool
    ) -> None:
        """Answer in other turns than those in which the partitions were read."""
        with self.answers.begin(context, FetchResponse) as answer:
            await answer.other_turn()
            topics = answer.rows(FetchableTopicResponse)
            number = size = 0
            # Partitions keep their order, so a topic may come more than once.
            for (topic, topic_id), of_topic in groupby(reads, _TOPIC_OF):
                rows = answer.rows(PartitionData)
                for read in of_topic:
                    number += 1
                    size += len(topic)
                    if number >= PART_READS or size >= TURN_NAME_BYTES:
                        await answer.other_turn()
                        number = size = 0
                    rows.add(self._partition(context, read, with_records))
                topics.add(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=rows.finish()))
            context.answer(
                FetchResponse(throttle_time_ms=0, session_id=session_id, responses=topics.finish())
            )

    def _send(
        self, context: RequestContext, session_id: int, reads: Sequence[Read], with_records: bool
    ) -> None:
        topics: list[FetchableTopicResponse] = []
        topic: FetchableTopicResponse | None = None
        for read in reads:
            # Partitions keep their order, so a topic may come more than once.
            if topic is None or topic.topic != read.topic or topic.topic_id != read.topic_id:
                topic = FetchableTopicResponse(topic=read.topic, topic_id=read.topic_id, partitions=[])
                topics.append(topic)
            topic.partitions.append(self._partition(context, read, with_records))
        context.answer(FetchResponse(throttle_time_ms=0, session_id=session_id, responses=topics))

    def _answer_one(self, context: RequestContext, read: Read) -> None:
        """Answer a fetch of one partition without a session."""
        found = read.read
        if (
            found is None
            or found.diverging is not None
            or found.aborted is not None
            or read.preferred != NO_REPLICA
            or found.last_stable_offset != found.high_watermark
        ):
            self._answer(context, NO_SESSION, [read])
            return
        high_watermark, log_start_offset, _, records, _, _, _, _ = found
        counts = self.replicas.traffic.find(read.topic)
        counts.reads += 1
        if records is not None:
            counts.bytes_out += records.length
        topic, topic_id, index = read.topic, read.topic_id, read.wanted.partition
        if compiled.ENCODE_RECORDS is not None and context.answer_encoded(
            compiled.ENCODE_RECORDS, topic, topic_id, index, high_watermark, log_start_offset, records
        ):
            return
        context.answer(records_response(topic, topic_id, index, high_watermark, log_start_offset, records))

    def _answer_kept(self, kept: KeptFetch) -> AnswerRead:
        """What answers a fetch that was begun by the shortcut, and is not usual any more. The fetch itself is
        forgotten when its wait ends, perhaps before a worker has read its records from the disk."""
        return functools.partial(self._answer_one, call_of(kept, _SOME_FETCH))

    def _answer_kept_session(self, kept: KeptFetch | SeveralFetch) -> AnswerReads:
        """As `_answer_kept`, of several partitions or in a session."""
        return functools.partial(self._answer, call_of(kept, _SOME_FETCH))

    def _partition(self, context: RequestContext, read: Read, with_records: bool) -> PartitionData:
        """The row of a partition. Without its records a later fetch reads them: a session keeps a partition
        that had records stirred."""
        if read.error is not None:
            return self._failed_partition(context, read, read.error)
        assert read.read is not None
        found = read.read
        data = PartitionData(
            partition_index=read.wanted.partition,
            error_code=0,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            diverging_epoch=NO_DIVERGENCE,
            current_leader=NO_LEADER,
            snapshot_id=NO_SNAPSHOT,
            preferred_read_replica=read.preferred,
            records=b"" if found.records is None or not with_records else found.records,
        )
        if found.aborted is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in found.aborted
            ]
        if found.diverging is not None:
            epoch, end_offset = found.diverging
            data.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end_offset)
        return data

    def _failed_partition(self, context: RequestContext, read: Read, error: BrokerError) -> PartitionData:
        data = PartitionData(
            partition_index=read.wanted.partition, error_code=error.code, high_watermark=-1, records=b""
        )
        if error.code in _NOT_A_READER:
            data.error_message = error.message
        if context.version >= _FIRST_VERSION_WITH_LEADER and error.code in _MOVED:
            known = self.replicas.known_leader(read.topic, read.wanted.partition)
            if known is not None:
                leader, epoch = known
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower whose log has no offset in common with this one starts again from here.
            partition = self.replicas.find(read.topic, read.wanted.partition)
            if partition is not None:
                data.log_start_offset = partition.log.log_start_offset
        return data

    def failed(self, context: RequestContext, request: FetchRequest, error: BrokerError) -> FetchResponse:
        if context.version >= _FIRST_VERSION_WITH_ERROR:
            return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])
        return FetchResponse(
            throttle_time_ms=0,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._failed_partition(context, Read(topic.topic, wanted), error)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )


def _is_long(request: FetchRequest) -> bool:
    """Whether a consumer's fetch takes turns."""
    partitions = names = 0
    for topic in request.topics:
        partitions += len(topic.partitions)
        names += len(topic.topic)
    return partitions >= TURN_PARTITIONS or names >= TURN_NAME_BYTES


def _are_few(reads: Sequence[Read]) -> bool:
    """Whether the reads are answered in one turn."""
    count = len(reads)
    return count < 3 or (count < TURN_PARTITIONS and sum(len(read.topic) for read in reads) < TURN_NAME_BYTES)


def _gone(failure: Failure) -> None:
    """Nobody waits for the answer."""
    failure.trap(AnswerAbandoned)
