"""ElectLeaders (key 43): move leadership back to preferred leaders, or to an out-of-sync replica if no
in-sync one is left (KIP-183, KIP-460). Only the controller accepts it.

Versions: from 1 on the request chooses the kind of election; before, it elects the preferred leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred

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


@dataclass(eq=False)
class ElectLeadersHandler(Handler[ElectLeadersRequest, ElectLeadersResponse]):
    request = ElectLeadersRequest
    controller: ControllerService
    rights: ClusterRights

    def handle(self, context: RequestContext, request: ElectLeadersRequest) -> Deferred[ElectLeadersResponse]:
        self.rights.check(context, "elect leaders")
        try:
            election = ElectionType(request.election_type)
        except ValueError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
        elected = self.controller.elect_leaders(
            _named(request), request.timeout_ms, unclean=election is ElectionType.UNCLEAN
        )

        def answer(results: Mapping[TopicPartition, ErrorCode]) -> ElectLeadersResponse:
            done = [f"{name}-{number}" for (name, number), code in results.items() if code == ErrorCode.NONE]
            if done:
                kind = election.name.lower()
                log_change(context, "Elected %s leaders of %d partitions: %s", kind, len(done), shown(done))
            return _response(results)

        return elected.addCallback(answer)

    def failed(
        self, context: RequestContext, request: ElectLeadersRequest, error: BrokerError
    ) -> ElectLeadersResponse:
        # Version 0 has error codes only in its rows of partitions.
        response = _response(dict.fromkeys(_named(request) or (), error.code))
        if context.version > 0:
            response.error_code = error.code
        return response


def _named(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    """The partitions that the request names; None for all."""
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, number)
        for topic in request.topic_partitions
        for number in topic.partitions
    ]


def _message(code: ErrorCode) -> str | None:
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return (
            "not elected within the timeout: the present leader has not answered the controller's request to "
            "yield, or the controller is busy. The leader may still be elected"
        )
    return error_for(code).message if code else None


def _response(results: Mapping[TopicPartition, ErrorCode]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for (name, number), code in results.items():
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name, partition_result=[]))
        topic.partition_result.append(
            PartitionResult(
                partition_id=number,
                error_code=code,
                error_message=_message(code),
            )
        )
    return ElectLeadersResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, replica_election_results=list(topics.values())
    )
