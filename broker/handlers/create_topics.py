"""CreateTopics (key 19): create topics, by numbers or by an assignment of replicas, with their own settings.

Only the controller accepts it; another broker answers NOT_CONTROLLER for each topic. The response comes when
brokers know the topic, or with REQUEST_TIMED_OUT after the client's timeout; the topic is created either way.

Versions: from 4 on -1 stands for the broker's default of partitions and replicas (KIP-464); from 5 on the
response describes the topic (KIP-525), from 7 on with its id. A client that may not describe the settings of
the topic gets neither them nor the numbers. From 6 on a topic of a client over its quota is
refused with THROTTLING_QUOTA_EXCEEDED (KIP-599); before, the client is throttled after the creation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.mutations import MutationQuotas
from holdfast_log.broker.settings.view import SettingsView
from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.controller.events import TopicCreation, TopicResult
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_FIRST_STRICT_VERSION = 6
_ROW_BYTES = 200
"""The price of a row that is checked, or answered: that takes longer than its bytes."""

_Described: TypeAlias = dict[tuple[tuple[str, str | None], ...], list[CreatableTopicConfigs]]


@dataclass(eq=False)
class CreateTopicsHandler(Handler[CreateTopicsRequest, CreateTopicsResponse]):
    request = CreateTopicsRequest
    controller: ControllerService
    settings: SettingsView
    mutations: MutationQuotas
    answers: LongAnswers

    def handle(self, context: RequestContext, request: CreateTopicsRequest) -> Deferred[CreateTopicsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Check the topics in turns, have the controller create them together, and answer in turns."""
        with self.answers.begin(context, CreateTopicsResponse) as answer:
            wanted, refused = await self._checked(answer, request)
            results = refused
            if wanted:
                created = self.controller.create_topics(
                    list(wanted.values()), request.timeout_ms, validate_only=request.validate_only
                )
                try:
                    made = await answer.outcome(created)
                    results = {**refused, **made}
                except BrokerError as error:
                    results, wanted = _failed(request, error), {}
            described: _Described = {}
            rows = answer.rows(CreatableTopicResult)
            for name, result in results.items():
                await answer.turn(_ROW_BYTES, even_if_gone=True)
                topic = wanted.get(name)
                if topic is not None and not request.validate_only:
                    _log_created(context, result, topic, request.on_behalf_of)
                rows.add(self._result(context, result, topic, described))
            return CreateTopicsResponse(throttle_time_ms=0, topics=rows.finish())

    async def _checked(
        self, answer: LongAnswer, request: CreateTopicsRequest
    ) -> tuple[dict[str, TopicCreation], dict[str, TopicResult]]:
        """The topics that the controller is asked for, and the results of those that are refused before."""
        context = answer.context
        counts = Counter(topic.name for topic in request.topics)
        refused: dict[str, TopicResult] = {}
        wanted: dict[str, TopicCreation] = {}
        may_create_all = context.may(AclOperation.CREATE, AclResource.CLUSTER, is_noted=False)
        for topic in request.topics:
            await answer.turn(_ROW_BYTES)
            if counts[topic.name] > 1:
                message = "the request names this topic several times"
                refused[topic.name] = TopicResult(topic.name, ErrorCode.INVALID_REQUEST, message)
                continue
            try:
                if not may_create_all:
                    context.check(AclOperation.CREATE, AclResource.TOPIC, topic.name)
                creation = _new_topic(topic)
                self._check_settings(creation)
                if not request.validate_only:
                    self._charge(context, creation)
                wanted[topic.name] = creation
            except BrokerError as error:
                refused[topic.name] = TopicResult(topic.name, error.code, error.message)
        return wanted, refused

    def _check_settings(self, topic: TopicCreation) -> None:
        """Raises BrokerError INVALID_CONFIG."""
        try:
            self.settings.check_new_topic(topic.name, topic.configs, replicas_of(topic))
        except SettingError as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def _charge(self, context: RequestContext, topic: TopicCreation) -> None:
        """Charge the client. Raises BrokerError THROTTLING_QUOTA_EXCEEDED."""
        if not self.controller.is_active:
            return
        refusal = self.mutations.create(
            context,
            topic.name,
            len(topic.assignments) or topic.partition_count,
            is_strict=context.version >= _FIRST_STRICT_VERSION,
        )
        if refusal is not None:
            raise refusal

    def _result(
        self,
        context: RequestContext,
        result: TopicResult,
        topic: TopicCreation | None,
        described: _Described,
    ) -> CreatableTopicResult:
        """`described` caches descriptions by own settings, which most topics of a request share."""
        answer = CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id,
            error_code=result.error,
            error_message=result.message,
            num_partitions=result.partition_count,
            replication_factor=result.replication_factor,
            configs=None,
        )
        if result.error is ErrorCode.NONE and topic is not None:
            if not context.may(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, result.name, is_noted=False):
                answer.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                answer.num_partitions = answer.replication_factor = -1
                return answer
            settings = tuple(sorted(topic.configs.items()))
            if settings not in described:
                described[settings] = [
                    CreatableTopicConfigs(
                        name=entry.name,
                        value=entry.value,
                        read_only=False,
                        config_source=entry.source,
                        is_sensitive=entry.is_sensitive,
                    )
                    for entry in self.settings.describe_topic(topic.configs)
                ]
            answer.configs = described[settings]
        return answer

    def failed(
        self, context: RequestContext, request: CreateTopicsRequest, error: BrokerError
    ) -> CreateTopicsResponse:
        results = _failed(request, error).values()
        return CreateTopicsResponse(
            throttle_time_ms=0, topics=[self._result(context, each, None, {}) for each in results]
        )


def _failed(request: CreateTopicsRequest, error: BrokerError) -> dict[str, TopicResult]:
    """The results of a request that failed as a whole."""
    return {topic.name: TopicResult(topic.name, error.code, error.message) for topic in request.topics}


def _log_created(
    context: RequestContext, result: TopicResult, topic: TopicCreation, on_behalf_of: str | None
) -> None:
    if result.error is ErrorCode.NONE:
        what = "Created topic %s with %d partitions, %d replicas each, settings %s"
        counts = result.partition_count, result.replication_factor
        settings = shown(dict(topic.configs))
        log_change(context, what, topic.name, *counts, settings, on_behalf_of=on_behalf_of)


def replicas_of(topic: TopicCreation) -> int | None:
    """How many replicas each partition of a new topic has at least; None for the brokers' default."""
    if topic.assignments:
        return min(map(len, topic.assignments.values()))
    return topic.replication_factor if topic.replication_factor > 0 else None


def _new_topic(topic: CreatableTopic) -> TopicCreation:
    """Convert a topic of the request. Raises BrokerError if the request contradicts itself."""
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replicas are given for the same partition several times"
        )
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise BrokerError(ErrorCode.INVALID_CONFIG, "the same setting is given several times")
    return TopicCreation(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)
