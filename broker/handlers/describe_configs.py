"""DescribeConfigs (key 32): the settings of topics and of this broker, with where their values come from, and
the levels of its loggers (KIP-412).

Versions: from 3 on the response may have each setting's type and documentation. Only a broker itself answers
for its settings. A broker named "" stands for the alterations of all brokers. Passwords are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext
from holdfast_log.broker.settings.changes import TOPICS, check_is_named_broker, check_is_this_broker
from holdfast_log.broker.settings.loggers import LoggerLevels
from holdfast_log.broker.settings.view import EffectiveSetting, SettingsView
from holdfast_log.clients.settings import Setting, SettingType
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.configs import ConfigSource, ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_VALUE_BYTES, _DOC_BYTES = 60, 250
"""The usual sizes of a setting's name and value, and of its documentation."""


@dataclass(eq=False)
class DescribeConfigsHandler(Handler[DescribeConfigsRequest, DescribeConfigsResponse]):
    request = DescribeConfigsRequest
    elements_max = ANY_ELEMENTS
    identity: BrokerIdentity
    settings: SettingsView
    dynamic_configs: DynamicConfigs
    metadata: MetadataCache
    loggers: LoggerLevels
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeConfigsRequest
    ) -> Deferred[DescribeConfigsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        with self.answers.begin(context, DescribeConfigsResponse) as answer:
            rows = answer.rows(DescribeConfigsResult)
            for resource in _named_once(request.resources):
                denied = _denial(context, resource)
                if denied is not None:
                    is_affordable = await answer.afford(len(resource.resource_name) + len(denied.message))
                    rows.add(_failed(resource, denied if is_affordable else answer.too_long))
                elif await answer.afford(self._price(request, resource)):
                    rows.add(self._result(request, resource))
                else:
                    rows.add(_failed(resource, answer.too_long))
            return DescribeConfigsResponse(throttle_time_ms=0, results=rows.finish())

    def _price(self, request: DescribeConfigsRequest, resource: DescribeConfigsResource) -> int:
        """The size of a resource's settings, most of which a request asks for by leaving out their names."""
        keys = resource.configuration_keys
        is_topic = resource.resource_type == ResourceType.TOPIC
        if is_topic and resource.resource_name not in self.metadata.topics:
            return len(resource.resource_name)
        settings = self.settings.settings_of_topics if is_topic else self.settings.settings_of_brokers
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            settings = len(self.loggers.names())
        named = settings if keys is None else min(len(keys), settings)
        return named * _setting_bytes(request)

    def _result(
        self, request: DescribeConfigsRequest, resource: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        try:
            return _result(request, resource, self._describe(resource))
        except BrokerError as error:
            return _failed(resource, error)

    def _describe(self, resource: DescribeConfigsResource) -> list[EffectiveSetting]:
        name = resource.resource_name
        keys = None if resource.configuration_keys is None else set(resource.configuration_keys)
        match resource.resource_type:
            case ResourceType.TOPIC:
                if name not in self.metadata.topics:
                    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return self.settings.describe_topic(self.dynamic_configs.get(TOPICS, name), keys)
            case ResourceType.BROKER:
                check_is_this_broker(name, self.identity.broker_id)
                if not name:
                    return self.settings.describe_all_brokers(keys)
                return self.settings.describe_broker(keys)
            case ResourceType.BROKER_LOGGER:
                check_is_named_broker(name, self.identity.broker_id)
                return [_level(*each) for each in self.loggers.levels(keys).items()]
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no settings"
        )

    def failed(
        self, context: RequestContext, request: DescribeConfigsRequest, error: BrokerError
    ) -> DescribeConfigsResponse:
        results = [_failed(resource, error) for resource in _named_once(request.resources)]
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _denial(context: RequestContext, resource: DescribeConfigsResource) -> BrokerError | None:
    """Why the client may not see the settings of a resource; None if it may."""
    if resource.resource_type == ResourceType.TOPIC:
        return context.denial(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, resource.resource_name)
    return context.denial(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)


def _result(
    request: DescribeConfigsRequest, resource: DescribeConfigsResource, entries: list[EffectiveSetting]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(request, entry) for entry in entries],
    )


def _failed(resource: DescribeConfigsResource, error: BrokerError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _entry(request: DescribeConfigsRequest, entry: EffectiveSetting) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=(entry.row.doc or None) if request.include_documentation else None,
    )


def _named_once(resources: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """Each resource once, with what was asked of it last: its settings may be a thousand times as long as its
    name."""
    named = {(each.resource_type, each.resource_name): each for each in resources}
    return list(named.values())


def _level(logger: str, level: str) -> EffectiveSetting:
    row = Setting(logger, SettingType.STRING, None, "Level in force of a logger.")
    return EffectiveSetting(row, level, ConfigSource.DYNAMIC_BROKER_LOGGER, read_only=False, synonyms=())


def _setting_bytes(request: DescribeConfigsRequest) -> int:
    """The usual size of a setting in the response."""
    synonyms = 2 * _VALUE_BYTES if request.include_synonyms else 0
    return _VALUE_BYTES + synonyms + (_DOC_BYTES if request.include_documentation else 0)
