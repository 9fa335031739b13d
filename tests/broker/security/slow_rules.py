"""Access control as Kafka documents it, written to be read: the reference for the compiled rules.

It knows bindings only, looks at every one for each question, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource

IMPLIED_BY = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""The operations that, when allowed, allow another one as well."""

UNHEARD_OF = "☃"
"""A character that is in no pattern of a test."""


def applies(pattern: ResourcePattern, resource: AclResource, name: str) -> bool:
    if pattern.resource is not resource:
        return False
    if pattern.pattern is AclPattern.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def concerns(entry: AclEntry, principal: str, host: str, operation: AclOperation) -> bool:
    return (
        entry.principal in (principal, "User:*")
        and entry.host in (host, "*")
        and entry.operation in (operation, AclOperation.ALL)
    )


def slowly_allows(
    bindings: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
    *,
    allows_unlisted: bool = False,
    with_implied: bool = True,
) -> bool:
    """Whether the principal may do this."""
    entries = [each.entry for each in bindings if applies(each.pattern, resource, name)]
    if not entries:
        return allows_unlisted
    for entry in entries:
        if entry.permission is AclPermission.DENY and concerns(entry, principal, host, operation):
            return False
    sufficient = (operation, *(IMPLIED_BY.get(operation, ()) if with_implied else ()))
    return any(
        entry.permission is AclPermission.ALLOW and concerns(entry, principal, host, each)
        for entry in entries
        for each in sufficient
    )


def slowly_allows_some(
    bindings: Sequence[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
) -> bool:
    """Whether there is a name such that the principal may do this to the resource of that name. The names
    tried are those of all patterns, and others that begin with each of them or with none."""
    patterns = {each.pattern.name for each in bindings if each.pattern.resource is resource}
    names = patterns - {"*"} | {name + UNHEARD_OF for name in patterns} | {UNHEARD_OF}
    return any(
        slowly_allows(bindings, principal, host, operation, resource, name, with_implied=False)
        for name in names
    )
