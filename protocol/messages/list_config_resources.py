"""ListConfigResources: the names of what has settings of its own (KIP-1142; version 0 is KIP-714's
ListClientMetricsResources)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class ListedConfigResource:
    """`resource_type` is a ResourceType."""

    resource_name: str
    resource_type: Int8 = wire("1+", default=16, ignorable=True)


@struct
class ListConfigResourcesResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ListedConfigResource]


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    """No types: all types."""

    resource_types: list[Int8] = wire("1+")
