"""DeleteTopics (key 20): delete topics with all their records. Only the controller accepts it.

The response comes when the topics are gone, or with REQUEST_TIMED_OUT after the client's timeout; the topics
are deleted either way. Versions: from 3 on there is an error code for deletion that is switched off, from 5
on a topic of a client over its quota is refused with THROTTLING_QUOTA_EXCEEDED (KIP-599), from 6 on topics
may be named by id (KIP-516).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.mutations import MutationQuotas
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.settings.rows import BROKER_ROWS
from holdfast_log.coordinator.controller.events import TopicResult
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.controller.topic_rules import check_deletable
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_FIRST_VERSION_WITH_DISABLED = 3
_FIRST_STRICT_VERSION = 5
_FIRST_VERSION_WITH_IDS = 6
_ROW_BYTES = 200
"""The price of a row that is checked, or answered: that takes longer than its bytes."""


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class TopicDeletionSettings:
    """Whether clients may delete topics."""

    is_enabled: Annotated[bool, "delete.topic.enable"]


@dataclass(eq=False)
class DeleteTopicsHandler(Handler[DeleteTopicsRequest, DeleteTopicsResponse]):
    request = DeleteTopicsRequest
    controller: ControllerService
    metadata: MetadataCache
    settings: TopicDeletionSettings
    mutations: MutationQuotas
    answers: LongAnswers

    def handle(self, context: RequestContext, request: DeleteTopicsRequest) -> Deferred[DeleteTopicsResponse]:
        if not self.settings.is_enabled:
            is_told = context.version >= _FIRST_VERSION_WITH_DISABLED
            raise BrokerError(
                ErrorCode.TOPIC_DELETION_DISABLED if is_told else ErrorCode.INVALID_REQUEST,
                "topics cannot be deleted: delete.topic.enable is false",
            )
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Check the topics in turns, have the controller delete them together, and answer in turns."""
        with self.answers.begin(context, DeleteTopicsResponse) as answer:
            names, refused = await self._checked(answer, request)
            results: dict[str, TopicResult] = {}
            if names:
                try:
                    deleted = self.controller.delete_topics(list(names), request.timeout_ms)
                    results = await answer.outcome(deleted)
                except BrokerError as error:
                    refused = _failed(context, request, error)
            rows = answer.rows(DeletableTopicResult)
            for row in refused:
                await answer.turn(_ROW_BYTES, even_if_gone=True)
                rows.add(row)
            for name, result in results.items():
                await answer.turn(_ROW_BYTES, even_if_gone=True)
                if result.error is ErrorCode.NONE:
                    log_change(context, "Deleted topic %s with all its records", name)
                rows.add(_result(name, names[name], result.error, result.message))
            return DeleteTopicsResponse(throttle_time_ms=0, responses=rows.finish())

    async def _checked(
        self, answer: LongAnswer, request: DeleteTopicsRequest
    ) -> tuple[dict[str, uuid.UUID], list[DeletableTopicResult]]:
        """The topics that the controller is asked to delete, and the rows of those that are refused
        before."""
        context = answer.context
        refused = []
        names: dict[str, uuid.UUID] = {}
        may_delete_all = context.may(AclOperation.DELETE, AclResource.CLUSTER, is_noted=False)
        for wanted in _states(context, request):
            await answer.turn(_ROW_BYTES)
            name = wanted.name
            if name is None:
                name = self.metadata.name_of(wanted.topic_id)
            if name is None:
                refused.append(_result(None, wanted.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, None))
                continue
            if not may_delete_all and not context.may(AclOperation.DESCRIBE, AclResource.TOPIC, name):
                # The name of a topic named by its id is not told, nor whether one named by its name exists.
                refused.append(
                    _result(wanted.name, wanted.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
                )
                continue
            topic_id = self.metadata.topic_id(name)
            try:
                if not may_delete_all:
                    context.check(AclOperation.DELETE, AclResource.TOPIC, name)
                check_deletable(name)
                self._charge(context, name)
                names[name] = topic_id
            except BrokerError as error:
                refused.append(_result(name, topic_id, error.code, error.message))
        return names, refused

    def _charge(self, context: RequestContext, name: str) -> None:
        """Charge the client. Raises BrokerError THROTTLING_QUOTA_EXCEEDED."""
        if not self.controller.is_active:
            return
        is_strict = context.version >= _FIRST_STRICT_VERSION
        refusal = self.mutations.delete(context, name, is_strict=is_strict)
        if refusal is not None:
            raise refusal

    def failed(
        self, context: RequestContext, request: DeleteTopicsRequest, error: BrokerError
    ) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(throttle_time_ms=0, responses=_failed(context, request, error))


def _failed(
    context: RequestContext, request: DeleteTopicsRequest, error: BrokerError
) -> list[DeletableTopicResult]:
    """The rows of a request that failed as a whole."""
    return [
        _result(wanted.name, wanted.topic_id, error.code, error.message)
        for wanted in _states(context, request)
    ]


def _states(context: RequestContext, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    if context.version >= _FIRST_VERSION_WITH_IDS:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=uuid.UUID(int=0)) for name in request.topic_names]


def _result(
    name: str | None, topic_id: uuid.UUID, error: ErrorCode, message: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)
