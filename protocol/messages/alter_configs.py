"""AlterConfigs: replace all settings of topics and brokers (KIP-133)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None = None
    resource_type: Int8
    resource_name: str


@struct
class AlterConfigsResponse(Response):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


@struct
class AlterableConfig:
    name: str
    value: str | None


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    resources: list[AlterConfigsResource]
    validate_only: bool
