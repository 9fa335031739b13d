"""DescribeCluster: the brokers and the controller (KIP-700, KIP-919)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@struct
class DescribeClusterResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = None
    endpoint_type: Int8 = wire("1+", default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648


@request(key=60, versions="0-1", flexible="0+")
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """`endpoint_type` is 1 for brokers, 2 for controllers (KIP-919)."""

    include_cluster_authorized_operations: bool
    endpoint_type: Int8 = wire("1+", default=1)
