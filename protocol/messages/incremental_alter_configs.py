"""IncrementalAlterConfigs: change single settings of topics and brokers (KIP-339)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct


@struct
class IncrementalAlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None = None
    resource_type: Int8
    resource_name: str


@struct
class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: Int32
    responses: list[IncrementalAlterConfigsResourceResponse]


@struct
class ConfigAlteration:
    """`config_operation` is 0 to set, 1 to delete, 2 to append to a list, 3 to subtract from it."""

    name: str
    config_operation: Int8
    value: str | None


@struct
class IncrementalAlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[ConfigAlteration]


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool
