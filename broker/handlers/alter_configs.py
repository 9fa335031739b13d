"""AlterConfigs (key 33): replace all of a topic's own settings, or all altered settings of a broker.

Settings that the request does not name return to their defaults; IncrementalAlterConfigs keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults

from broker.handler import Handler, RequestContext
from broker.settings.changes import SettingChanges
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@dataclass(eq=False)
class AlterConfigsHandler(Handler[AlterConfigsRequest, AlterConfigsResponse]):
    request = AlterConfigsRequest
    changes: SettingChanges

    def handle(self, context: RequestContext, request: AlterConfigsRequest) -> Deferred[AlterConfigsResponse]:
        altered = gatherResults(
            [self._replace(resource, request.validate_only) for resource in request.resources]
        )
        return altered.addCallback(
            lambda responses: AlterConfigsResponse(throttle_time_ms=0, responses=responses)
        )

    def _replace(
        self, resource: AlterConfigsResource, validate_only: bool
    ) -> Deferred[AlterConfigsResourceResponse]:
        outcome = self.changes.replace(
            resource.resource_type,
            resource.resource_name,
            {config.name: config.value for config in resource.configs},
            validate_only=validate_only,
        )
        return outcome.addCallback(lambda error: _response(resource, error))

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
