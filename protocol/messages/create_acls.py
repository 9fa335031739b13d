"""CreateAcls: new access rules (KIP-140, KIP-290)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct


@struct
class AclCreationResult:
    error_code: Int16
    error_message: str | None = None


@struct
class CreateAclsResponse(Response):
    throttle_time_ms: Int32
    results: list[AclCreationResult]


@struct
class AclCreation:
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@request(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Request[CreateAclsResponse]):
    creations: list[AclCreation]
