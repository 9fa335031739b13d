"""IncrementalAlterConfigs (key 44): set or delete settings, or change lists item by item (KIP-339).

The settings are those of topics, and the dynamic ones of brokers (KIP-226). A broker named "" stands for all
brokers. Each broker puts a change into effect when ZooKeeper notifies it. The levels of a broker's loggers
(KIP-412) are altered at once, by that broker alone, until it stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.audit import log_altered
from holdfast_log.broker.requests.cluster_rights import ClusterRights, alter_refusal
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.repeats import repeated_resources, resource_named_twice
from holdfast_log.broker.settings.alterations import Alteration
from holdfast_log.broker.settings.changes import SettingChanges, check_is_named_broker
from holdfast_log.broker.settings.loggers import LoggerLevels
from holdfast_log.protocol.configs import ConfigOperation, ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


@dataclass(eq=False)
class IncrementalAlterConfigsHandler(
    Handler[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse]
):
    request = IncrementalAlterConfigsRequest
    changes: SettingChanges
    loggers: LoggerLevels
    identity: BrokerIdentity
    rights: ClusterRights
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> Deferred[IncrementalAlterConfigsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        twice = repeated_resources(request.resources)

        def alter(
            resource: IncrementalAlterConfigsResource,
        ) -> Deferred[IncrementalAlterConfigsResourceResponse]:
            if (resource.resource_type, resource.resource_name) in twice:
                return succeed(_response(resource, resource_named_twice()))
            return self._alter(context, resource, request.validate_only)

        with self.answers.begin(context, IncrementalAlterConfigsResponse) as answer:
            responses = await answer.altered(
                IncrementalAlterConfigsResourceResponse, request.resources, alter
            )
            return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)

    def _alter(
        self, context: RequestContext, resource: IncrementalAlterConfigsResource, validate_only: bool
    ) -> Deferred[IncrementalAlterConfigsResourceResponse]:
        refused = alter_refusal(context, self.rights, resource.resource_type, resource.resource_name)
        if refused is not None:
            return succeed(_response(resource, refused))
        try:
            alterations = [
                Alteration(config.name, ConfigOperation(config.config_operation), config.value)
                for config in resource.configs
            ]
        except ValueError as error:
            return succeed(_response(resource, BrokerError(ErrorCode.INVALID_REQUEST, str(error))))
        outcome = (
            succeed(self._alter_loggers(resource, alterations, validate_only=validate_only))
            if resource.resource_type == ResourceType.BROKER_LOGGER
            else self.changes.alter(
                resource.resource_type, resource.resource_name, alterations, validate_only=validate_only
            )
        )

        def answer(error: BrokerError | None) -> IncrementalAlterConfigsResourceResponse:
            if error is None and not validate_only:
                changes = {
                    each.name: None if each.operation is ConfigOperation.DELETE else each.value
                    for each in alterations
                }
                log_altered(context, resource.resource_type, resource.resource_name, changes)
            return _response(resource, error)

        return outcome.addCallback(answer)

    def _alter_loggers(
        self,
        resource: IncrementalAlterConfigsResource,
        alterations: Sequence[Alteration],
        *,
        validate_only: bool,
    ) -> BrokerError | None:
        try:
            check_is_named_broker(resource.resource_name, self.identity.broker_id)
            self.loggers.alter(alterations, validate_only=validate_only)
        except BrokerError as error:
            return error.with_traceback(None)
        return None

    def failed(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest, error: BrokerError
    ) -> IncrementalAlterConfigsResponse:
        responses = [_response(resource, error) for resource in request.resources]
        return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _response(
    resource: IncrementalAlterConfigsResource, error: BrokerError | None
) -> IncrementalAlterConfigsResourceResponse:
    return IncrementalAlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
