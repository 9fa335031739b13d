"""Appends by single requests, for clients that misbehave: they repeat requests, send them without waiting for
answers, and put into them what no producer would.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from holdfast_log.checker.calls import Outcome
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import ConnectionFailedError
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from holdfast_log.protocol.topic_partition import TopicPartition

_SEARCH_TIMEOUT_MS = 1_000
_ANSWER_TIMEOUT_MS = 2_000
_REFUSALS = frozenset(
    {
        ErrorCode.OFFSET_MISMATCH,
        ErrorCode.KEY_VERSION_MISMATCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OWNERSHIP_DETACHED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors that say that nothing was appended, and will not be. Others leave that open."""


class RawAppender:
    """A connection that writes to one partition. All its requests are sent on one conversation with the
    leader, as long as that lasts."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.place = place
        self._connection = Connection(settings.bootstrap, {**settings.properties(), "client.id": name})
        self._node = NO_NODE

    def find_leader(self) -> bool:
        """Look for the partition's leader, if it is not known. Returns whether it is known now."""
        if self._node == NO_NODE:
            self._connection.metadata.want(self.place.topic)
            self._connection.metadata.renew()
            self._connection.poll(_SEARCH_TIMEOUT_MS)
            self._node = self._connection.metadata.leader(*self.place)
        return self._node != NO_NODE

    def leave(self) -> None:
        """Look for the leader again before the next request."""
        self._node = NO_NODE

    def new_producer_id(self) -> int:
        """The id of a new idempotent producer, -1 if the broker gives none. Raises ClientError."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        return int(self._connection.ask(ANY_NODE, request).producer_id)

    def append_all(
        self, wanted: Sequence[tuple[bytearray, dict[str, Any]]]
    ) -> list[PartitionProduceResponse | Exception]:
        """Send a request for each batch, one after the other without waiting, and return what each was
        answered, or why it was not. Each batch has fields of PartitionProduceData. Raises ClientError if no
        broker can be reached."""
        calls = [Call(self._node, self._request(records, fields)) for records, fields in wanted]
        replies: dict[int, Reply] = {}
        sending = calls
        while len(replies) < len(calls):
            for reply in self._connection.poll(_ANSWER_TIMEOUT_MS, *sending):
                if any(reply.call is call for call in calls):  # Not one that was given up.
                    replies[id(reply.call)] = reply
            sending = []
        answers = [_answer(replies[id(call)]) for call in calls]
        has_moved = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if any(isinstance(each, Exception) or each.error_code in has_moved for each in answers):
            self.leave()
        return answers

    def topic_id(self) -> Any:
        """The id that the topic had when this connection last saw metadata; zero if it has seen none."""
        return self._connection.metadata.topic_id(self.place.topic)

    def close(self) -> None:
        self._connection.close()

    def _request(self, records: bytearray, fields: dict[str, Any]) -> ProduceRequest:
        data = PartitionProduceData(index=self.place.partition, records=bytearray(records), **fields)
        topic = TopicProduceData(name=self.place.topic, partition_data=[data])
        return ProduceRequest(acks=-1, timeout_ms=_ANSWER_TIMEOUT_MS, topic_data=[topic])


def _answer(reply: Reply) -> PartitionProduceResponse | Exception:
    if reply.error is not None:
        return reply.error
    response: Any = reply.response
    rows = [row for topic in response.responses for row in topic.partition_responses]
    if len(rows) != 1:
        return ConnectionFailedError("the response leaves the partition out")
    answer: PartitionProduceResponse = rows[0]
    return answer


def outcome_of(answer: PartitionProduceResponse | Exception) -> Outcome:
    """What an answer says about the append."""
    if isinstance(answer, Exception):
        return Outcome.UNKNOWN
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NONE:
        return Outcome.DONE
    return Outcome.REFUSED if code in _REFUSALS else Outcome.UNKNOWN


def batch_of(
    values: Sequence[str],
    *,
    key: str | None = None,
    append_id: bytes = b"",
    producer_id: int = -1,
    sequence: int = -1,
) -> bytearray:
    """A batch of these values; of an idempotent producer, if `producer_id` is that of one."""
    builder = BatchBuilder()
    now_ms = int(time.time() * 1000)
    for index, value in enumerate(values):
        headers = ((APPEND_ID_HEADER, append_id),) if append_id and not index else ()
        builder.append(now_ms, None if key is None else key.encode(), value.encode(), headers)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        has_append_id=bool(append_id),
    )
