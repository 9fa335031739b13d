"""AlterConfigs (key 33): replace all of a topic's own settings, or all altered settings of a broker.

Settings that the request does not name return to their defaults; IncrementalAlterConfigs keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.audit import log_altered
from holdfast_log.broker.requests.cluster_rights import ClusterRights, alter_refusal
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.repeats import repeated_resources, resource_named_twice
from holdfast_log.broker.settings.changes import SettingChanges
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@dataclass(eq=False)
class AlterConfigsHandler(Handler[AlterConfigsRequest, AlterConfigsResponse]):
    request = AlterConfigsRequest
    changes: SettingChanges
    rights: ClusterRights
    answers: LongAnswers

    def handle(self, context: RequestContext, request: AlterConfigsRequest) -> Deferred[AlterConfigsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
        twice = repeated_resources(request.resources)

        def alter(resource: AlterConfigsResource) -> Deferred[AlterConfigsResourceResponse]:
            if (resource.resource_type, resource.resource_name) in twice:
                return succeed(_response(resource, resource_named_twice()))
            return self._replace(context, resource, request.validate_only)

        with self.answers.begin(context, AlterConfigsResponse) as answer:
            responses = await answer.altered(AlterConfigsResourceResponse, request.resources, alter)
            return AlterConfigsResponse(throttle_time_ms=0, responses=responses)

    def _replace(
        self, context: RequestContext, resource: AlterConfigsResource, validate_only: bool
    ) -> Deferred[AlterConfigsResourceResponse]:
        refused = alter_refusal(context, self.rights, resource.resource_type, resource.resource_name)
        if refused is not None:
            return succeed(_response(resource, refused))
        configs = {config.name: config.value for config in resource.configs}
        outcome = self.changes.replace(
            resource.resource_type, resource.resource_name, configs, validate_only=validate_only
        )

        def answer(error: BrokerError | None) -> AlterConfigsResourceResponse:
            if error is None and not validate_only:
                log_altered(context, resource.resource_type, resource.resource_name, configs)
            return _response(resource, error)

        return outcome.addCallback(answer)

    def failed(
        self, context: RequestContext, request: AlterConfigsRequest, error: BrokerError
    ) -> AlterConfigsResponse:
        responses = [_response(resource, error) for resource in request.resources]
        return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _response(resource: AlterConfigsResource, error: BrokerError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
