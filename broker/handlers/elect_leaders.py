"""ElectLeaders (key 43): move leadership back to preferred leaders, or to an out-of-sync replica if no
in-sync one is left (KIP-183, KIP-460). Only the controller accepts it.

Versions: from 1 on the request chooses the kind of election; before, it elects the preferred leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_ROW_BYTES = 64
"""The price of a row: its message."""
_NAMED_PER_STEP = 200
_NAMED_BYTES = 16
"""The price of a partition that is named, in bytes of an answer: it takes a microsecond."""
_SHOWN_MAX = 100
"""Maximum number of partitions in the line of the log, which is shorter."""


@dataclass(eq=False)
class ElectLeadersHandler(Handler[ElectLeadersRequest, ElectLeadersResponse]):
    request = ElectLeadersRequest
    controller: ControllerService
    rights: ClusterRights
    answers: LongAnswers

    def handle(self, context: RequestContext, request: ElectLeadersRequest) -> Deferred[ElectLeadersResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Name the partitions in turns, have the controller elect all leaders together, and answer in turns,
        also with the error of a request that fails as a whole."""
        with self.answers.begin(context, ElectLeadersResponse) as answer:
            named = await _named(answer, request)
            whole = ErrorCode.NONE
            try:
                self.rights.check(context, "elect leaders")
                is_unclean = _election_of(request) is ElectionType.UNCLEAN
                elected = self.controller.elect_leaders(named, request.timeout_ms, unclean=is_unclean)
                results = await answer.outcome(elected)
            except BrokerError as error:
                whole = _whole(context, error)
                results = dict.fromkeys(named or (), error.code)
            codes: dict[str, dict[int, ErrorCode]] = {}
            count, first = 0, list[str]()
            for (name, number), code in results.items():
                await answer.turn(0, even_if_gone=True)
                codes.setdefault(name, {})[number] = code
                if code == ErrorCode.NONE:
                    count += 1
                    if count <= _SHOWN_MAX:
                        first.append(f"{name}-{number}")
            if count:
                kind = _election_of(request).name.lower()
                log_change(context, "Elected %s leaders of %d partitions: %s", kind, count, shown(first))
            return ElectLeadersResponse(
                throttle_time_ms=0, error_code=whole, replica_election_results=await _topics(answer, codes)
            )

    def failed(
        self, context: RequestContext, request: ElectLeadersRequest, error: BrokerError
    ) -> ElectLeadersResponse:
        numbers: dict[str, dict[int, None]] = {}
        for topic in request.topic_partitions or ():
            numbers.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
        return ElectLeadersResponse(
            throttle_time_ms=0,
            error_code=_whole(context, error),
            replica_election_results=[
                ReplicaElectionResult(
                    topic=name, partition_result=[_row(number, error.code) for number in found]
                )
                for name, found in numbers.items()
            ],
        )


def _election_of(request: ElectLeadersRequest) -> ElectionType:
    """The kind of election. Raises BrokerError INVALID_REQUEST."""
    try:
        return ElectionType(request.election_type)
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _whole(context: RequestContext, error: BrokerError) -> ErrorCode:
    """The error of the whole answer. Version 0 has error codes only in its rows of partitions."""
    return error.code if context.version > 0 else ErrorCode.NONE


async def _named(answer: LongAnswer, request: ElectLeadersRequest) -> list[TopicPartition] | None:
    """The partitions that the request names; None for all."""
    if request.topic_partitions is None:
        return None
    named = []
    for topic in request.topic_partitions:
        await answer.turn(0)
        for start in range(0, len(topic.partitions), _NAMED_PER_STEP):
            step = topic.partitions[start : start + _NAMED_PER_STEP]
            await answer.turn(len(step) * _NAMED_BYTES)
            named += [TopicPartition(topic.topic, number) for number in step]
    return named


async def _topics(
    answer: LongAnswer, codes: Mapping[str, Mapping[int, ErrorCode]]
) -> list[ReplicaElectionResult]:
    """The rows of the answer."""
    topics = answer.rows(ReplicaElectionResult)
    for name, found in codes.items():
        partitions = answer.rows(PartitionResult)
        for number, code in found.items():
            await answer.turn(_ROW_BYTES)
            partitions.add(_row(number, code))
        topics.add(ReplicaElectionResult(topic=name, partition_result=partitions.finish()))
    return topics.finish()


@cache
def _message(code: ErrorCode) -> str | None:
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return (
            "not elected within the timeout: the present leader has not answered the controller's request to "
            "yield, or the controller is busy. The leader may still be elected"
        )
    return error_for(code).message if code else None


def _row(number: int, code: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_id=number, error_code=code, error_message=_message(code))
