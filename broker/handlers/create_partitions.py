"""CreatePartitions (key 37): add partitions to topics (KIP-195). Only the controller accepts it.

Versions: from 3 on a topic of a client over its quota is refused with THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.requests.audit import log_change
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.mutations import MutationQuotas
from holdfast_log.coordinator.controller.events import MorePartitions, TopicResult
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_FIRST_STRICT_VERSION = 3


@dataclass(eq=False)
class CreatePartitionsHandler(Handler[CreatePartitionsRequest, CreatePartitionsResponse]):
    request = CreatePartitionsRequest
    controller: ControllerService
    mutations: MutationQuotas

    def handle(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> Deferred[CreatePartitionsResponse]:
        counts = Counter(topic.name for topic in request.topics)
        refused = [
            TopicResult(name, ErrorCode.INVALID_REQUEST, "the request names this topic several times")
            for name, count in counts.items()
            if count > 1
        ]
        wanted = []
        for topic in request.topics:
            if counts[topic.name] > 1:
                continue
            denied = context.denial(AclOperation.ALTER, AclResource.TOPIC, topic.name)
            if denied is None:
                wanted.append(_more(topic))
            else:
                refused.append(TopicResult(topic.name, denied.code, denied.message))
        if self.controller.is_active and not request.validate_only:
            wanted = self._admitted(context, wanted, refused)
        if not wanted:
            return succeed(_response(refused))
        grown = self.controller.create_partitions(
            wanted, request.timeout_ms, validate_only=request.validate_only
        )
        counts_wanted = {more.name: more.count for more in wanted}

        def answer(results: dict[str, TopicResult]) -> CreatePartitionsResponse:
            for name, result in results.items():
                if result.error is ErrorCode.NONE and not request.validate_only:
                    log_change(context, "Topic %s now has %d partitions", name, counts_wanted[name])
            return _response([*refused, *results.values()])

        return grown.addCallback(answer)

    def _admitted(
        self, context: RequestContext, wanted: list[MorePartitions], refused: list[TopicResult]
    ) -> list[MorePartitions]:
        """Charge the client. Returns the topics that its quota admits; appends the others to `refused`."""
        admitted = []
        is_strict = context.version >= _FIRST_STRICT_VERSION
        for more in wanted:
            refusal = self.mutations.grow(context, more.name, more.count, is_strict=is_strict)
            if refusal is None:
                admitted.append(more)
            else:
                refused.append(TopicResult(more.name, refusal.code, refusal.message))
        return admitted

    def failed(
        self, context: RequestContext, request: CreatePartitionsRequest, error: BrokerError
    ) -> CreatePartitionsResponse:
        return _response([TopicResult(topic.name, error.code, error.message) for topic in request.topics])


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else [assignment.broker_ids for assignment in assignments],
    )


def _response(results: list[TopicResult]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.error, error_message=result.message
            )
            for result in results
        ],
    )
