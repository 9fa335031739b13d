"""Whether an answer is one to the question that was asked.

A response that can be decoded may still be none: it may name partitions that nobody asked for, or none of
those that were. One check for each API, in one table, before any other part of a client sees the response.
A response that fails is treated like damaged bytes: the connection is closed, the log says why, the calls
under way fail with a retriable error, and the next connection waits for `reconnect.backoff.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast_log.clients.connection.complete_answers import check_complete
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.schema import MalformedMessage

if TYPE_CHECKING:  # A client imports the messages that it sends, and no others.
    from holdfast_log.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from holdfast_log.protocol.messages.fetch import FetchRequest, FetchResponse
    from holdfast_log.protocol.messages.find_coordinator import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )
    from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from holdfast_log.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataResponse
    from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from holdfast_log.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
    )
    from holdfast_log.protocol.messages.produce import ProduceRequest, ProduceResponse

_LATEST, _EARLIEST = -1, -2
_MAX_PORT = 65_535

_Names = Iterable[tuple[Hashable, Iterable[int]]]
"""Topics, each with partition numbers."""


def check_answer(request: Request[Any], response: Response) -> None:
    """Raise MalformedMessage for a response that does not answer `request`."""
    check_complete(request, response)
    check = _CHECKS.get(request.api.name)
    if check is not None:
        check(request, response)


def _check_partitions(asked: _Names, answered: _Names) -> int:
    """Raise for a partition that was not asked for, and for one that is answered twice. Returns how many are
    answered."""
    wanted: dict[Hashable, set[int]] = {}
    for name, numbers in asked:
        wanted.setdefault(name, set()).update(numbers)
    count = 0
    for name, numbers in answered:
        open_ = wanted.get(name)
        if open_ is None:
            raise MalformedMessage(f"the answer names topic {name!r}, which was not asked for")
        for number in numbers:
            if number not in open_:
                raise MalformedMessage(
                    f"the answer names partition {number} of {name!r}, which was not asked for, or twice"
                )
            open_.remove(number)
            count += 1
    return count


def _check_some(asked: _Names, answered: _Names) -> None:
    """As `_check_partitions`; raise too if none of the partitions is answered."""
    asked = [(name, [*numbers]) for name, numbers in asked]
    if not _check_partitions(asked, answered) and any(numbers for _, numbers in asked):
        raise MalformedMessage("the answer names none of the partitions that were asked for")


def _check_fetch(request: FetchRequest, response: FetchResponse) -> None:
    if response.error_code:
        return
    # A response has the name of a topic or its id, depending on the version.
    by_name = any(topic.topic for topic in response.responses)
    asked = [
        (topic.topic if by_name else topic.topic_id, [row.partition for row in topic.partitions])
        for topic in request.topics
    ]
    answered = [
        (topic.topic if by_name else topic.topic_id, [row.partition_index for row in topic.partitions])
        for topic in response.responses
    ]
    if not answered and response.throttle_time_ms > 0:
        return  # A broker may leave out all partitions when it throttles the client (KIP-219).
    _check_some(asked, answered)
    for topic in response.responses:
        for row in topic.partitions:
            if row.error_code == ErrorCode.NONE and row.high_watermark < 0:
                raise MalformedMessage(f"the answer has the high watermark {row.high_watermark}")


def _check_list_offsets(request: ListOffsetsRequest, response: ListOffsetsResponse) -> None:
    times = {
        (topic.name, row.partition_index): row.timestamp
        for topic in request.topics
        for row in topic.partitions
    }
    _check_some(
        [(topic.name, [row.partition_index for row in topic.partitions]) for topic in request.topics],
        [(topic.name, [row.partition_index for row in topic.partitions]) for topic in response.topics],
    )
    for topic in response.topics:
        for row in topic.partitions:
            is_bound = times[topic.name, row.partition_index] in (_LATEST, _EARLIEST)
            if row.error_code == ErrorCode.NONE and row.offset < (0 if is_bound else -1):
                raise MalformedMessage(f"the answer has the offset {row.offset} and no error")


def _check_epochs(request: OffsetForLeaderEpochRequest, response: OffsetForLeaderEpochResponse) -> None:
    _check_some(
        [(topic.topic, [row.partition for row in topic.partitions]) for topic in request.topics],
        [(topic.topic, [row.partition for row in topic.partitions]) for topic in response.topics],
    )


def _check_produce(request: ProduceRequest, response: ProduceResponse) -> None:
    _check_some(
        [(topic.name, [row.index for row in topic.partition_data]) for topic in request.topic_data],
        [(topic.name, [row.index for row in topic.partition_responses]) for topic in response.responses],
    )


def _check_committed(request: OffsetFetchRequest, response: OffsetFetchResponse) -> None:
    names = [group.group_id for group in response.groups]
    if response.groups and names != [request.group_id]:
        raise MalformedMessage(f"the answer has the offsets of groups {names}, not of {request.group_id!r}")


def _check_metadata(request: MetadataRequest, response: MetadataResponse) -> None:
    seen: set[int] = set()
    for broker in response.brokers:
        _check_address(broker.host, broker.port)
        if broker.node_id < 0 or broker.node_id in seen:
            raise MalformedMessage(f"the answer names broker {broker.node_id} twice, or with a negative id")
        seen.add(broker.node_id)
    if request.topics is not None:
        asked = {topic.name for topic in request.topics if topic.name is not None}
        ids = {topic.topic_id for topic in request.topics if topic.name is None}
        for topic in response.topics:
            if topic.name not in asked and topic.topic_id not in ids:
                raise MalformedMessage(f"the answer names topic {topic.name!r}, which was not asked for")
    for topic in response.topics:
        numbers = {row.partition_index for row in topic.partitions}
        if len(numbers) < len(topic.partitions) or min(numbers, default=0) < 0:
            raise MalformedMessage(f"the answer has a partition of {topic.name!r} twice, or a negative one")


def _check_coordinators(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
    for row in response.coordinators:
        if row.key not in request.coordinator_keys:
            raise MalformedMessage(f"the answer names the coordinator of {row.key!r}, not of what was asked")
        if row.error_code == ErrorCode.NONE:
            _check_address(row.host, row.port)
    if not response.coordinators and response.error_code == ErrorCode.NONE:
        _check_address(response.host, response.port)


def _check_address(host: str, port: int) -> None:
    if not host or not 0 < port <= _MAX_PORT:
        raise MalformedMessage(f"the answer names a broker at {host!r}, port {port}: that is no address")


def _check_producer_id(request: InitProducerIdRequest, response: InitProducerIdResponse) -> None:
    if response.error_code == ErrorCode.NONE and (response.producer_id < 0 or response.producer_epoch < 0):
        raise MalformedMessage(
            f"the answer has the producer id {response.producer_id}, epoch {response.producer_epoch}"
        )


def _check_join(request: JoinGroupRequest, response: JoinGroupResponse) -> None:
    if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) and not response.member_id:
        raise MalformedMessage("the answer has no member id")
    if response.error_code == ErrorCode.NONE:
        offered = [protocol.name for protocol in request.protocols]
        if response.protocol_name not in offered:
            raise MalformedMessage(
                f"the answer names the assignor {response.protocol_name!r}, and this member offers {offered}"
            )


def _check_member(request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> None:
    if response.error_code or request.member_epoch < 0:
        return
    if response.member_epoch <= 0:
        raise MalformedMessage(f"the answer has the member epoch {response.member_epoch}")
    for topic in response.assignment.topic_partitions if response.assignment is not None else ():
        if min(topic.partitions, default=0) < 0:
            raise MalformedMessage(f"the answer assigns a negative partition of topic {topic.topic_id}")


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "Fetch": _check_fetch,
    "ListOffsets": _check_list_offsets,
    "OffsetForLeaderEpoch": _check_epochs,
    "Produce": _check_produce,
    "OffsetFetch": _check_committed,
    "Metadata": _check_metadata,
    "FindCoordinator": _check_coordinators,
    "InitProducerId": _check_producer_id,
    "JoinGroup": _check_join,
    "ConsumerGroupHeartbeat": _check_member,
}
