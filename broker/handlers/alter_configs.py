"""AlterConfigs (key 33): replace all of a topic's own settings, or all altered settings of a broker.

Settings that the request does not name return to their defaults; IncrementalAlterConfigs keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults, succeed

from holdfast_log.broker.requests.audit import log_altered
from holdfast_log.broker.requests.cluster_rights import ClusterRights, alter_refusal
from holdfast_log.broker.requests.handler import WRITTEN_PART_ROWS, Handler, RequestContext, RowPaths
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
    parts = (RowPaths(("resources",), ("responses",)),)
    part_rows = WRITTEN_PART_ROWS
    changes: SettingChanges
    rights: ClusterRights

    def is_divisible(self, request: AlterConfigsRequest) -> bool:
        return not repeated_resources(request.resources)

    def handle(self, context: RequestContext, request: AlterConfigsRequest) -> Deferred[AlterConfigsResponse]:
        twice = repeated_resources(request.resources)
        altered = gatherResults(
            [
                succeed(_response(each, resource_named_twice()))
                if (each.resource_type, each.resource_name) in twice
                else self._replace(context, each, request.validate_only)
                for each in request.resources
            ]
        )
        return altered.addCallback(
            lambda responses: AlterConfigsResponse(throttle_time_ms=0, responses=responses)
        )

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
