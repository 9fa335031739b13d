"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop moving them (KIP-455).

The response is sent when the moves have begun; ListPartitionReassignments lists those in progress. Brokers
other than the controller answer NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.audit import log_change
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(eq=False)
class AlterPartitionReassignmentsHandler(
    Handler[AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse]
):
    request = AlterPartitionReassignmentsRequest
    parts = (RowPaths(("topics", "partitions"), ("responses", "partitions")),)
    elements_max = ANY_ELEMENTS
    controller: ControllerService
    rights: ClusterRights

    def handle(
        self, context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> Deferred[AlterPartitionReassignmentsResponse]:
        self.rights.check(context, "reassign partitions")
        targets: dict[TopicPartition, list[int] | None] = {}
        for topic in request.topics:
            for row in topic.partitions:
                at = TopicPartition(topic.name, row.partition_index)
                if at in targets:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST, "the request names a partition several times"
                    )
                targets[at] = row.replicas

        def answer(
            results: Mapping[TopicPartition, BrokerError | None],
        ) -> AlterPartitionReassignmentsResponse:
            for (name, number), error in results.items():
                replicas = targets.get(TopicPartition(name, number))
                if error is None and replicas is None:
                    log_change(context, "Stopped the reassignment of %s-%d", name, number)
                elif error is None:
                    what = "Began to reassign %s-%d to brokers %s"
                    log_change(context, what, name, number, replicas)
            return _response(results)

        return self.controller.alter_reassignments(targets, request.timeout_ms).addCallback(answer)

    def failed(
        self, context: RequestContext, request: AlterPartitionReassignmentsRequest, error: BrokerError
    ) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, responses=[]
        )


def _response(results: Mapping[TopicPartition, BrokerError | None]) -> AlterPartitionReassignmentsResponse:
    topics: dict[str, ReassignableTopicResponse] = {}
    for (name, number), error in results.items():
        topic = topics.setdefault(name, ReassignableTopicResponse(name=name, partitions=[]))
        topic.partitions.append(
            ReassignablePartitionResponse(
                partition_index=number,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, responses=list(topics.values())
    )
