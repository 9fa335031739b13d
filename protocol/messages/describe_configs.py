"""DescribeConfigs: settings of topics and brokers, and where their values come from (KIP-133, KIP-226)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class DescribeConfigsSynonym:
    name: str
    value: str | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    """`config_source`: 1 topic, 2 broker, 3 all brokers, 4 broker's file, 5 default, 6 loggers.
    `config_type`: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password
    (KIP-569).
    """

    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = wire("3+", ignorable=True)
    documentation: str | None = wire("3+", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: Int16
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


@struct
class DescribeConfigsResponse(Response):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]


@struct
class DescribeConfigsResource:
    """`resource_type` is 2 for a topic, 4 for a broker, 8 for a broker's loggers. Null keys ask for all."""

    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = wire("3+")
