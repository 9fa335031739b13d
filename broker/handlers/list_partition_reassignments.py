"""ListPartitionReassignments (key 46): the partitions whose replicas are being moved, and from which brokers
to which (KIP-455). Only the controller accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswers
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

_ROW_BYTES = 64
"""The price of a row: its lists of replicas."""


@dataclass(eq=False)
class ListPartitionReassignmentsHandler(
    Handler[ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse]
):
    request = ListPartitionReassignmentsRequest
    controller: ControllerService
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> Deferred[ListPartitionReassignmentsResponse]:
        context.check(AclOperation.DESCRIBE, AclResource.CLUSTER)
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Ask the controller for all running reassignments, which are few, and answer with those that the
        request names."""
        with self.answers.begin(context, ListPartitionReassignmentsResponse) as answer:
            running = await answer.outcome(self.controller.list_reassignments(request.timeout_ms))
            by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
            for (name, number), assignment in running.items():
                await answer.turn(0)
                by_topic.setdefault(name, {})[number] = assignment
            found = by_topic
            if request.topics is not None:
                found = {}
                for asked in request.topics:
                    await answer.turn(0)
                    of_topic = by_topic.get(asked.name, {})
                    for number in asked.partition_indexes if of_topic else ():
                        if number in of_topic:
                            found.setdefault(asked.name, {})[number] = of_topic[number]
            topics = answer.rows(OngoingTopicReassignment)
            for name, of_topic in found.items():
                partitions = answer.rows(OngoingPartitionReassignment)
                for number, assignment in of_topic.items():
                    await answer.turn(_ROW_BYTES)
                    partitions.add(_row(number, assignment))
                topics.add(OngoingTopicReassignment(name=name, partitions=partitions.finish()))
            return ListPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics.finish()
            )

    def failed(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest, error: BrokerError
    ) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, topics=[]
        )


def _row(number: int, assignment: ReplicaAssignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
    )
