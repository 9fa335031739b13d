"""ListPartitionReassignments (key 46): the partitions whose replicas are being moved, and from which brokers
to which (KIP-455). Only the controller accepts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(eq=False)
class ListPartitionReassignmentsHandler(
    Handler[ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse]
):
    request = ListPartitionReassignmentsRequest
    controller: ControllerService

    def handle(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> Deferred[ListPartitionReassignmentsResponse]:
        context.check(AclOperation.DESCRIBE, AclResource.CLUSTER)
        wanted = None
        if request.topics is not None:
            wanted = [
                TopicPartition(topic.name, number)
                for topic in request.topics
                for number in topic.partition_indexes
            ]
        return self.controller.list_reassignments(wanted, request.timeout_ms).addCallback(_response)

    def failed(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest, error: BrokerError
    ) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, topics=[]
        )


def _response(running: Mapping[TopicPartition, ReplicaAssignment]) -> ListPartitionReassignmentsResponse:
    topics: dict[str, OngoingTopicReassignment] = {}
    for (name, number), assignment in running.items():
        topic = topics.setdefault(name, OngoingTopicReassignment(name=name, partitions=[]))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, topics=list(topics.values())
    )
