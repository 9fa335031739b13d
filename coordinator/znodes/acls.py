"""/kafka-acl/<Type>/<name>, /kafka-acl-extended/prefixed/<Type>/<name>: the entries of a resource pattern;
/kafka-acl-changes, /kafka-acl-extended-changes: notifications of changes, for each kind of pattern.

The names of types, operations and permissions are Kafka's: `TransactionalId`, `DescribeConfigs`, `Allow`.
Readers take them in any case, as Kafka does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json
from holdfast_log.protocol.acl_bindings import AclEntry, ResourcePattern, acl_name, acl_named
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource

ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = f"{EXTENDED_ACLS}/prefixed"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_NAME = "acl_changes_"
"""What the names of notifications begin with, in both folders."""

ACL_PATTERNS = (AclPattern.LITERAL, AclPattern.PREFIXED)
"""The kinds of patterns that have entries."""

ACL_RESOURCES = (
    AclResource.TOPIC,
    AclResource.GROUP,
    AclResource.CLUSTER,
    AclResource.TRANSACTIONAL_ID,
    AclResource.DELEGATION_TOKEN,
    AclResource.USER,
)
"""The kinds of resources that have entries."""

_VERSION = 1
_SEPARATOR = ":"
_ROOTS = {AclPattern.LITERAL: ACLS, AclPattern.PREFIXED: PREFIXED_ACLS}


_NO_NAMES = ("", ".", "..")
_FORBIDDEN = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""What ZooKeeper does not take in the name of a znode."""


def is_acl_name(name: str) -> bool:
    """Whether a resource pattern of this name can have entries: its name is that of a znode."""
    return name not in _NO_NAMES and _FORBIDDEN.search(name) is None


def acl_folder(resource: AclResource, pattern: AclPattern) -> str:
    """The parent of the znodes of one kind of resource and pattern."""
    return f"{_ROOTS[pattern]}/{acl_name(resource)}"


def acl_path(pattern: ResourcePattern) -> str:
    return f"{acl_folder(pattern.resource, pattern.pattern)}/{pattern.name}"


ACL_FOLDERS = (
    *(acl_folder(resource, pattern) for pattern in ACL_PATTERNS for resource in ACL_RESOURCES),
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)
"""The persistent znodes of a cluster that has an authorizer, besides their own parents."""


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": acl_name(entry.permission),
            "operation": acl_name(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries, key=_order)
    ]
    return encode_json({"version": _VERSION, "acls": acls})


def decode_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """Decode the entries of a pattern; empty data holds none. Raises `BadZnode`."""
    if not data:
        return frozenset()
    value = decode_json(path, data)
    if value.get("version") != _VERSION:
        raise BadZnode(f"{path} has version {value.get('version')} of access control lists, not {_VERSION}")
    try:
        return frozenset(map(_entry, value["acls"]))
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not hold access control lists: {error!r}") from None


def _entry(value: dict[str, str]) -> AclEntry:
    principal, host = value["principal"], value["host"]
    if not isinstance(host, str) or _SEPARATOR not in principal:
        raise ValueError(f"host {host!r}, principal {principal!r}")
    return AclEntry(
        principal,
        host,
        acl_named(AclOperation, value["operation"]),
        acl_named(AclPermission, value["permissionType"]),
    )


def _order(entry: AclEntry) -> tuple[str, str, int, int]:
    return entry.principal, entry.host, entry.operation, entry.permission


def acl_change_prefix(pattern: ResourcePattern) -> str:
    """The path of a notification, without the number that ZooKeeper appends."""
    folder = ACL_CHANGES if pattern.pattern is AclPattern.LITERAL else EXTENDED_ACL_CHANGES
    return f"{folder}/{ACL_CHANGE_NAME}"


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """Encode the notification that a pattern's entries have changed. That of a literal pattern is text, which
    brokers older than Kafka 2.0 understand."""
    if pattern.pattern is AclPattern.LITERAL:
        return f"{pattern.resource.name}{_SEPARATOR}{pattern.name}".encode()
    return encode_json(
        {
            "version": _VERSION,
            "resourceType": pattern.resource.name,
            "name": pattern.name,
            "patternType": pattern.pattern.name,
        }
    )


def decode_acl_change(path: str, data: bytes) -> ResourcePattern:
    """The pattern whose entries have changed. Raises `BadZnode`."""
    try:
        if path.startswith(f"{ACL_CHANGES}/"):
            kind, separator, name = data.decode().partition(_SEPARATOR)
            pattern = ResourcePattern(acl_named(AclResource, kind), name if separator else "")
        else:
            value = decode_json(path, data)
            kind, name = value["resourceType"], value["name"]
            pattern = ResourcePattern(
                acl_named(AclResource, kind), name, acl_named(AclPattern, value["patternType"])
            )
        is_known = pattern.resource in ACL_RESOURCES and pattern.pattern in ACL_PATTERNS
        if is_known and is_acl_name(pattern.name):
            return pattern
    except WRONG_SHAPE:
        pass
    raise BadZnode(f"{path} does not name changed access control lists: {data[:100]!r}")
