"""DeleteAcls: delete the access rules that match filters (KIP-140, KIP-290)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: str | None = None
    matching_acls: list[DeleteAclsMatchingAcl]


@struct
class DeleteAclsResponse(Response):
    throttle_time_ms: Int32
    filter_results: list[DeleteAclsFilterResult]


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@request(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    filters: list[DeleteAclsFilter]
