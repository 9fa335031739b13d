"""Access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.errors import error_for
from holdfast_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from holdfast_log.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
)
from holdfast_log.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
)

T = TypeVar("T")

_PER_REQUEST = 1_000
"""Entries or filters in one request: brokers take 2,000."""


def create_acls(asking: Asking, bindings: Iterable[AclBinding]) -> None:
    """Create entries; those that exist stay. Raises the first error after all have been tried."""
    outcomes: list[tuple[str, int, str | None]] = []
    for part in _parts(list(bindings)):
        request = CreateAclsRequest(creations=[_creation(each) for each in part])
        response = asking.ask(
            ANY_NODE, request, lambda answer: [result.error_code for result in answer.results]
        )
        outcomes += [
            (str(binding), result.error_code, result.error_message)
            for binding, result in zip(part, response.results, strict=True)
        ]
    raise_first(outcomes)


def describe_acls(asking: Asking, wanted: AclFilter) -> list[AclBinding]:
    """The entries that a filter selects, in the order of the broker's answer."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = asking.ask(ANY_NODE, request, lambda answer: [answer.error_code])
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    return [_described(row, acl) for row in response.resources for acl in row.acls]


def delete_acls(asking: Asking, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """Delete what each filter selects. Raises the first error after all have been tried."""
    deleted: list[AclBinding] = []
    outcomes: list[tuple[str, int, str | None]] = []
    for part in _parts(list(filters)):
        request = DeleteAclsRequest(filters=[_filter(each) for each in part])
        response = asking.ask(
            ANY_NODE, request, lambda answer: [row.error_code for row in answer.filter_results]
        )
        for wanted, row in zip(part, response.filter_results, strict=True):
            outcomes.append((str(wanted), row.error_code, row.error_message))
            for each in row.matching_acls:
                binding = _deleted(each)
                outcomes.append((str(binding), each.error_code, each.error_message))
                if not each.error_code:
                    deleted.append(binding)
    raise_first(outcomes)
    return deleted


def _parts(items: Sequence[T]) -> Iterable[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, _PER_REQUEST)):
        yield part


def _creation(binding: AclBinding) -> AclCreation:
    pattern, entry = binding.pattern, binding.entry
    return AclCreation(
        resource_type=pattern.resource,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _filter(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.resource,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _described(row: DescribeAclsResource, acl: AclDescription) -> AclBinding:
    pattern = ResourcePattern(AclResource(row.resource_type), row.resource_name, AclPattern(row.pattern_type))
    return AclBinding(pattern, _entry(acl))


def _deleted(acl: DeleteAclsMatchingAcl) -> AclBinding:
    pattern = ResourcePattern(AclResource(acl.resource_type), acl.resource_name, AclPattern(acl.pattern_type))
    return AclBinding(pattern, _entry(acl))


def _entry(acl: AclDescription | DeleteAclsMatchingAcl) -> AclEntry:
    return AclEntry(acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type))
