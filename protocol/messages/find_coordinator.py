"""FindCoordinator: the broker that coordinates a group or a transactional id (KIP-699: several from v4)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class FoundCoordinator:
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16
    error_message: str | None = None


@struct
class FindCoordinatorResponse(Response):
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    error_code: Int16 = wire("0-3")
    error_message: str | None = wire("1-3", default=None, ignorable=True)
    node_id: Int32 = wire("0-3")
    host: str = wire("0-3")
    port: Int32 = wire("0-3")
    coordinators: list[FoundCoordinator] = wire("4+")


@request(key=10, versions="0-5", flexible="3+")
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """`key_type` is 0 for a group, 1 for a transactional id. From version 4 on there are several keys
    (KIP-699).
    """

    key: str = wire("0-3", ignorable=True)
    key_type: Int8 = wire("1+")
    coordinator_keys: list[str] = wire("4+", ignorable=True)
