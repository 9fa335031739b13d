"""Produce (key 0): append record batches, acknowledged at once (acks=1), when all in-sync replicas have them
(acks=-1), or not at all (acks=0).

Versions: 0 to 2 carry the old message formats, which are refused: every partition is answered
UNSUPPORTED_FOR_MESSAGE_FORMAT. They are offered because librdkafka up to 2.11 disables compression if a
broker's minimum version is above 0. From version 8 on a refused partition has a message, from 10 on the
current leader (KIP-951). A batch that begins a transaction in its partition waits until the transaction's
coordinator has confirmed that it has the partition; from 12 on this broker has it added (KIP-890).

Each partition succeeds or fails independently, unless the request sets a condition (KIP-27, see
`broker.replication.conditions`): a condition that fails refuses the whole request. With acks=0 there is no
response; a failure then closes the connection, so that the client looks up the leader again.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.log.decompression import INLINE_BYTES_MAX
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.admission import NO_TOKEN, RequestFence
from holdfast_log.broker.replication.appends import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    NO_EXPECTATION,
    Append,
    Condition,
)
from holdfast_log.broker.replication.first_appends import prepare_append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.key_reads import KeyReads
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.verifying import Verifying
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    DIVISION_STEP_ROWS,
    Answer,
    Begun,
    Handler,
    JoinedContext,
    MayDo,
    RequestContext,
    RowPaths,
    Shortcut,
)
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.batches import COMPRESSION_MASK, TRANSACTIONAL, attributes_of
from holdfast_log.protocol.errors import (
    AppendIdUnknownError,
    BrokerError,
    ErrorCode,
    InvalidRecordError,
    KeyVersionMismatchError,
    OffsetMismatchError,
)
from holdfast_log.protocol.frames import Part
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch
from holdfast_log.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    KeyVersion,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast_log.protocol.plain_produce import acknowledgement
from holdfast_log.protocol.records import APPEND_ID_SIZE
from holdfast_log.protocol.schema import decode_from, received_records

_log = logging.getLogger(__name__)

_FIRST_VERSION_WITH_BATCHES = 3
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_ADDS = 12
_ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
_MAKE_WAY_MS_MAX = 5_000
"""Longest time for which a request waits for the end of the grant of an owner that is gone."""
CONDITIONAL_PARTITIONS_MAX = 250
"""Maximum number of partitions in a request with a condition, which is carried out in one turn."""
_NAMED_TWICE = "the request names a partition more than once"
_NO_LEADER = LeaderIdAndEpoch()
"""Shared by all responses without a leader; never modified."""
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(eq=False)
class ProduceHandler(Handler[ProduceRequest, ProduceResponse]):
    request = ProduceRequest
    elements_max = ANY_ELEMENTS
    parts = (RowPaths(("topic_data", "partition_data"), ("responses", "partition_responses")),)
    whole_rows_max = 100
    parts_overlap = True
    replicas: Replicas
    key_reads: KeyReads
    held_requests: HeldRequests
    verifying: Verifying

    def divisible_steps(
        self, context: RequestContext, request: ProduceRequest
    ) -> Generator[None, None, bool]:
        named: set[tuple[str, int]] = set()
        has_conditions = False
        looked_at = 0
        for topic in request.topic_data:
            looked_at += 1  # It may have no partitions.
            if looked_at % DIVISION_STEP_ROWS == 0:
                yield
            has_conditions = has_conditions or self.replicas.expects_offsets(topic.name)
            for data in topic.partition_data:
                looked_at += 1
                at = (topic.name, data.index)
                if at in named:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, _NAMED_TWICE)
                named.add(at)
                has_conditions = has_conditions or _is_conditional(data)
                if looked_at % DIVISION_STEP_ROWS == 0:
                    yield
        if has_conditions and len(named) > CONDITIONAL_PARTITIONS_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"a request with conditions may name {CONDITIONAL_PARTITIONS_MAX} partitions, since all or "
                "none of its batches are appended: send several requests",
            )
        if has_conditions:
            # All are appended in one turn. Their files are opened in others.
            write, kind = AclOperation.WRITE, AclResource.TOPIC
            for topic in request.topic_data:
                if context.may(write, kind, topic.name, is_noted=False):
                    for data in topic.partition_data:
                        prepare_append(self.replicas, topic.name, data.index)
                        yield
        return not has_conditions

    def _has_condition(self, topic: TopicProduceData) -> bool:
        """Whether a batch for the topic is appended on a condition, which is a field or its base offset."""
        return self.replicas.expects_offsets(topic.name) or any(map(_is_conditional, topic.partition_data))

    def shortcut(self) -> Shortcut | None:
        return self._shortcut(None)

    def judged_shortcut(self, may: MayDo) -> Shortcut | None:
        write, kind = AclOperation.WRITE, AclResource.TOPIC
        return self._shortcut(lambda connection, topic: may(connection, write, kind, topic))

    def _shortcut(self, may_write: Callable[[ServerConnection, str], bool] | None) -> Shortcut | None:
        if not usual_append.are_known():
            return None
        usual = usual_append.UsualAppends(self.replicas, self.held_requests, may_write)
        is_compiled = usual_append.is_compiled()

        def append(
            connection: ServerConnection, frame: memoryview, version: int, position: int, correlation_id: int
        ) -> list[Part] | Begun | None:
            if not is_compiled:
                connection.may_take_long()
            try:
                answer = usual.append(connection, frame, version, position, correlation_id)
            except Exception as error:
                return Begun(decode_from(ProduceRequest, version, frame, position)[0], _raising(error))
            if answer is None or isinstance(answer, list):
                return answer
            acks, timeout_ms, appends = answer
            request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[])
            return Begun(request, lambda context: self._finish(context, request, appends))

        return append

    def handle(self, context: RequestContext, request: ProduceRequest) -> Answer[ProduceResponse]:
        if context.is_judged:
            write, kind = AclOperation.WRITE, AclResource.TOPIC
            denied = [each for each in request.topic_data if not context.may(write, kind, each.name)]
            if denied:
                return self._handle_allowed(context, request, denied)
        return self._handle(context, request)

    def _handle_allowed(
        self, context: RequestContext, request: ProduceRequest, denied: list[TopicProduceData]
    ) -> Answer[ProduceResponse]:
        """Handle the topics that the client may write. A request with a condition is refused altogether."""
        if request.acks == ACKS_NONE:
            context.close(f"it may not write to {len(denied)} of the topics of its request with acks=0")
            return None
        refused = [
            _refused_topic(topic, BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for topic in denied
        ]
        refused_ids = set(map(id, denied))
        allowed = [topic for topic in request.topic_data if id(topic) not in refused_ids]
        if any(map(self._has_condition, request.topic_data)):
            refused += [_refused_topic(topic, _not_attempted()) for topic in allowed]
            allowed = []
        if not allowed:
            return ProduceResponse(responses=refused)

        def join(response: ProduceResponse) -> ProduceResponse:
            response.responses = [*response.responses, *refused]
            return response

        rest = copy.copy(request)
        rest.topic_data = allowed
        answer = self._handle(JoinedContext(context, join), rest)
        if isinstance(answer, Deferred):
            return answer.addCallback(join)
        return None if answer is None else join(answer)

    def _handle(self, context: RequestContext, request: ProduceRequest) -> Answer[ProduceResponse]:
        if request.acks not in _ACKS or context.version < _FIRST_VERSION_WITH_BATCHES:
            self._refuse(context, request)
        appends = []
        size = 0
        may_need_work = bool(self.held_requests.queues)
        may_begin = False
        if request.transactional_id is not None:
            context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if type(records) is not memoryview:
                    records = received_records(records)
                append = Append(topic.name, data.index, records)
                size += len(records)
                attributes = attributes_of(records)
                may_need_work = may_need_work or bool(attributes & COMPRESSION_MASK)
                may_begin = may_begin or bool(attributes & TRANSACTIONAL)
                if _is_conditional(data):
                    append.condition = _condition(data)
                    may_need_work = may_need_work or bool(data.expected_versions)
                if data.owner_token != NO_TOKEN:
                    append.fence = RequestFence(data.owner_token, bytes(data.owner_secret))
                appends.append(append)
        if len(appends) > 1 and len({(append.topic, append.index) for append in appends}) != len(appends):
            raise BrokerError(ErrorCode.INVALID_REQUEST, _NAMED_TWICE)
        asked: list[Deferred[None]] = []
        if may_begin:
            if not request.transactional_id:
                raise BrokerError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "a transactional batch needs the transactional id of its producer in the request",
                )
            adds = context.version >= _FIRST_VERSION_THAT_ADDS
            asked = self.verifying.begin(request.transactional_id, appends, adds=adds)
        if may_need_work or asked or size > INLINE_BYTES_MAX:
            done: Deferred[ProduceResponse] = Deferred()
            if self.key_reads.hold(
                appends, lambda: self._resume(context, request, appends, done), context.connection, asked
            ):
                return done
        return self._append_or_wait(context, request, appends)

    def _resume(
        self,
        context: RequestContext,
        request: ProduceRequest,
        appends: list[Append],
        done: Deferred[ProduceResponse],
    ) -> None:
        """Carry out a request that had to wait for reads. Fires `done` unless the context is answered."""
        if context.is_closed:
            return
        try:
            answer = self._append_or_wait(context, request, appends)
        except Exception:
            # This request fails; those that waited for it proceed.
            done.errback(Failure())
            return
        if isinstance(answer, Deferred):
            answer.chainDeferred(done)
        elif answer is not None:
            done.callback(answer)

    def _append_or_wait(
        self, context: RequestContext, request: ProduceRequest, appends: list[Append]
    ) -> Answer[ProduceResponse]:
        """Append now, or once what stands in the way has been done."""
        ways = self.replicas.append(appends, request.acks, context.connection, may_wait=True)
        if not ways:
            return self._finish(context, request, appends)
        done: Deferred[ProduceResponse] = Deferred()
        timeout_ms = min(max(request.timeout_ms, 0), _MAKE_WAY_MS_MAX)
        work = [make_way(timeout_ms) for make_way in ways]
        self.held_requests.hold(appends, work, lambda: self._append_at_last(context, request, appends, done))
        return done

    def _append_at_last(
        self,
        context: RequestContext,
        request: ProduceRequest,
        appends: list[Append],
        done: Deferred[ProduceResponse],
    ) -> None:
        """Carry out a request that has waited for what stood in its way. It does not wait once more."""
        if context.is_closed:
            return
        try:
            self.replicas.append(appends, request.acks, context.connection)
            response = self._finish(context, request, appends)
        except Exception:
            done.errback(Failure())
            return
        if response is not None:
            done.callback(response)

    def _finish(
        self, context: RequestContext, request: ProduceRequest, appends: list[Append]
    ) -> ProduceResponse | None:
        """Answer a request whose appends were carried out, now or when they are as durable as it wants."""
        acks, replicas = request.acks, self.replicas
        if acks == ACKS_NONE:
            self._finish_unacknowledged(context, appends)
            return None
        missing: dict[Hashable, Append] = {}
        for append in appends:
            # Only writes with acks=all depend on the right to acknowledge.
            if not (replicas.is_settled(append, acks) if acks == ACKS_ALL else append.is_settled(acks)):
                missing[append.topic, append.index] = append
        if not missing:
            return self._response(context, appends)
        self._park(context, request, appends, missing)
        return None

    def _refuse(self, context: RequestContext, request: ProduceRequest) -> NoReturn:
        """Raise the error of a request that is refused whatever its partitions are."""
        if request.acks not in _ACKS:
            raise BrokerError(ErrorCode.INVALID_REQUIRED_ACKS)
        context.note_refused(
            "Produce requests without record batches",
            f"Produce version {context.version} is not accepted, only record batches (version 3 and up)",
        )
        raise BrokerError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)

    def _park(
        self,
        context: RequestContext,
        request: ProduceRequest,
        appends: list[Append],
        missing: dict[Hashable, Append],
    ) -> None:
        """Answer when every partition is as durable as `acks` requires, or with REQUEST_TIMED_OUT. `missing`
        are the appends that are not yet, by partition."""
        replicas = self.replicas

        def check(key: Hashable) -> bool:
            append = missing.get(key)
            if append is not None and replicas.is_settled(append, request.acks):
                del missing[key]
                if not missing:
                    context.answer(self._response(context, appends))
            return not missing

        def expire() -> None:
            for append in missing.values():
                append.error = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
            context.answer(self._response(context, appends))

        replicas.writers.park(list(missing), request.timeout_ms, check, expire)

    def _finish_unacknowledged(self, context: RequestContext, appends: list[Append]) -> None:
        failed = next((append for append in appends if append.error is not None), None)
        if failed is not None:
            context.close(f"its batch with acks=0 for {failed.topic}-{failed.index} failed: {failed.error}")
        else:
            context.answer_nothing()

    def _response(self, context: RequestContext, appends: list[Append]) -> ProduceResponse:
        rows = []
        for append in appends:
            result = append.result
            if result is None or append.error is not None or append.condition is not None:
                break
            first_offset, _, append_time_ms, log_start_offset, _ = result
            rows.append((append.topic, append.index, first_offset, append_time_ms, log_start_offset))
        else:
            return acknowledgement(rows)
        self.replicas.conditions.confirm(appends)
        topics: dict[str, TopicProduceResponse] = {}
        for append in appends:
            topic = topics.get(append.topic)
            if topic is None:
                topic = TopicProduceResponse(name=append.topic, partition_responses=[])
                topics[append.topic] = topic
            topic.partition_responses.append(self._partition(append, context.version))
            if append.condition is not None and append.error is not None:
                self.replicas.conditions.answered(append, context.connection)
        return ProduceResponse(responses=list(topics.values()))

    def _partition(self, append: Append, version: int) -> PartitionProduceResponse:
        error, result = append.error, append.result
        if error is None and result is not None:
            response = PartitionProduceResponse(
                index=append.index,
                error_code=0,
                base_offset=result.first_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
                current_leader=_NO_LEADER,
            )
            if append.condition is not None:
                response.next_offset, response.last_leader_epoch = append.log_end()
                response.is_repeat = append.is_repeat
            return response
        if error is None:
            return self._guard(append)
        self.replicas.traffic.find(append.topic).failed_appends += 1
        code = error.code
        if code == ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_VERSION_WITH_ABORTABLE:
            code = ErrorCode.INVALID_TXN_STATE
        response = PartitionProduceResponse(
            index=append.index, error_code=code, base_offset=-1, error_message=error.message
        )
        if isinstance(error, OffsetMismatchError | AppendIdUnknownError):
            response.next_offset, response.last_leader_epoch = append.log_end()
            response.append_ids_from = append.ids_known_from()
        if isinstance(error, KeyVersionMismatchError):
            response.key_versions = [KeyVersion(record=index, version=at) for index, at in error.versions]
        if isinstance(error, InvalidRecordError):
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in error.records
            ]
        if error.code in _MOVED:
            known = self.replicas.known_leader(append.topic, append.index)
            if known is not None:
                leader, epoch = known
                response.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return response

    def _guard(self, append: Append) -> PartitionProduceResponse:
        """The response to a condition that held without batches to append."""
        assert append.is_guard
        response = PartitionProduceResponse(index=append.index, error_code=0, base_offset=-1)
        response.next_offset, response.last_leader_epoch = append.log_end()
        return response

    def failed(
        self, context: RequestContext, request: ProduceRequest, error: BrokerError
    ) -> ProduceResponse | None:
        if request.acks == ACKS_NONE:
            return None
        return ProduceResponse(responses=[_refused_topic(topic, error) for topic in request.topic_data])


def _refused_topic(topic: TopicProduceData, error: BrokerError) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        partition_responses=[
            PartitionProduceResponse(
                index=data.index, error_code=error.code, base_offset=-1, error_message=error.message
            )
            for data in topic.partition_data
        ],
    )


def _not_attempted() -> BrokerError:
    return BrokerError(
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        "nothing was appended: the client may not write to another topic of the conditional request",
    )


def _raising(error: Exception) -> Callable[[RequestContext], NoReturn]:
    """The end of a request whose handling has failed."""

    def finish(context: RequestContext) -> NoReturn:
        raise error

    return finish


def _is_conditional(data: PartitionProduceData) -> bool:
    """Whether fields of the request set a condition on the batch."""
    return data.expected_offset != NO_EXPECTATION or bool(data.expected_versions)


def _condition(data: PartitionProduceData) -> Condition:
    if data.expected_offset < NO_EXPECTATION:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"a log cannot end at {data.expected_offset}; -1 means no expectation"
        )
    if data.expected_versions and not data.records:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a partition without records expects versions of keys")
    append_id = data.append_id or None
    if append_id is not None and (len(append_id) != APPEND_ID_SIZE or not data.records):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"an append id of {len(append_id)} bytes: it must have {APPEND_ID_SIZE}, and come with a batch",
        )
    return Condition(
        data.expected_offset,
        data.expected_leader_epoch,
        data.attempt,
        data.expected_topic_id,
        data.expected_versions,
        append_id,
        data.id_unused_before,
    )
