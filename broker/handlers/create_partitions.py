"""CreatePartitions (key 37): add partitions to topics (KIP-195). Only the controller accepts it.

Versions: from 3 on a topic of a client over its quota is refused with THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
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
_ROW_BYTES = 200
"""The price of a row that is checked, or answered: that takes longer than its bytes."""


@dataclass(eq=False)
class CreatePartitionsHandler(Handler[CreatePartitionsRequest, CreatePartitionsResponse]):
    request = CreatePartitionsRequest
    controller: ControllerService
    mutations: MutationQuotas
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> Deferred[CreatePartitionsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Check the topics in turns, have the controller grow them together, and answer in turns."""
        with self.answers.begin(context, CreatePartitionsResponse) as answer:
            wanted, refused = await self._checked(answer, request)
            counts_wanted = {more.name: more.count for more in wanted}
            results: dict[str, TopicResult] = {}
            if wanted:
                grown = self.controller.create_partitions(
                    wanted, request.timeout_ms, validate_only=request.validate_only
                )
                try:
                    results = await answer.outcome(grown)
                except BrokerError as error:
                    refused = _failed(request, error)
            rows = answer.rows(CreatePartitionsTopicResult)
            for result in chain(refused, results.values()):
                await answer.turn(_ROW_BYTES, even_if_gone=True)
                if result.error is ErrorCode.NONE and not request.validate_only:
                    count = counts_wanted[result.name]
                    log_change(context, "Topic %s now has %d partitions", result.name, count)
                rows.add(_row(result))
            return CreatePartitionsResponse(throttle_time_ms=0, results=rows.finish())

    async def _checked(
        self, answer: LongAnswer, request: CreatePartitionsRequest
    ) -> tuple[list[MorePartitions], list[TopicResult]]:
        """The topics that the controller is asked to grow, and the results of those that are refused
        before."""
        context = answer.context
        counts = Counter(topic.name for topic in request.topics)
        refused = [
            TopicResult(name, ErrorCode.INVALID_REQUEST, "the request names this topic several times")
            for name, count in counts.items()
            if count > 1
        ]
        wanted = []
        for topic in request.topics:
            await answer.turn(_ROW_BYTES)
            if counts[topic.name] > 1:
                continue
            denied = context.denial(AclOperation.ALTER, AclResource.TOPIC, topic.name)
            if denied is None:
                wanted.append(_more(topic))
            else:
                refused.append(TopicResult(topic.name, denied.code, denied.message))
        if self.controller.is_active and not request.validate_only:
            wanted = await self._admitted(answer, wanted, refused)
        return wanted, refused

    async def _admitted(
        self, answer: LongAnswer, wanted: list[MorePartitions], refused: list[TopicResult]
    ) -> list[MorePartitions]:
        """Charge the client. Returns the topics that its quota admits; appends the others to `refused`."""
        admitted = []
        is_strict = answer.context.version >= _FIRST_STRICT_VERSION
        for more in wanted:
            await answer.turn(0)
            refusal = self.mutations.grow(answer.context, more.name, more.count, is_strict=is_strict)
            if refusal is None:
                admitted.append(more)
            else:
                refused.append(TopicResult(more.name, refusal.code, refusal.message))
        return admitted

    def failed(
        self, context: RequestContext, request: CreatePartitionsRequest, error: BrokerError
    ) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            throttle_time_ms=0, results=[_row(each) for each in _failed(request, error)]
        )


def _failed(request: CreatePartitionsRequest, error: BrokerError) -> list[TopicResult]:
    """The results of a request that failed as a whole."""
    return [TopicResult(topic.name, error.code, error.message) for topic in request.topics]


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else [assignment.broker_ids for assignment in assignments],
    )


def _row(result: TopicResult) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=result.name, error_code=result.error, error_message=result.message
    )
