"""Filters of access control entries, from the codes of a request."""

from __future__ import annotations

from holdfast_log.protocol.acl_bindings import AclFilter
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode


def checked_filter(
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission_type: int,
) -> AclFilter:
    """The filter with these codes. Raises BrokerError INVALID_REQUEST for one that this release does not
    know: it might select other entries than was meant."""
    wanted = AclFilter(
        AclResource(resource_type),
        name,
        AclPattern(pattern_type),
        principal,
        host,
        AclOperation(operation),
        AclPermission(permission_type),
    )
    for what, code in (
        ("resource type", wanted.resource),
        ("pattern type", wanted.pattern),
        ("operation", wanted.operation),
        ("permission type", wanted.permission),
    ):
        if not code:
            message = f"the filter has a {what} that this broker does not know: use 1 for any"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    return wanted
