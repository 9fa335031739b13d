"""Access control lists as values: an entry, the resources it is bound to, and filters that select entries.

Clients, brokers and what reads ZooKeeper share them (KIP-140, KIP-290).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from holdfast_log.protocol.acls import ANY_NAME, AclOperation, AclPattern, AclPermission, AclResource

E = TypeVar("E", bound=enum.IntEnum)

EVERY_HOST = "*"
"""Host of an entry that holds for all addresses."""

EVERYBODY = "User:*"
"""Principal of an entry that holds for all users."""


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Allows or denies an operation to a principal, such as "User:alice", who connects from a host: an IP
    address or `EVERY_HOST`."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    @property
    def is_known(self) -> bool:
        """Whether this release knows the operation and the permission. An entry that it does not know
        neither allows nor denies anything."""
        return self.operation > AclOperation.ANY and self.permission > AclPermission.ANY

    def __str__(self) -> str:
        verb = "allows" if self.permission is AclPermission.ALLOW else "denies"
        return f"{verb} {self.principal} {self.operation.name} from host {self.host}"


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that entries are bound to: those of a kind with this name (LITERAL), or whose names begin
    with it (PREFIXED). The literal name `ANY_NAME` stands for all of the kind."""

    resource: AclResource
    name: str
    pattern: AclPattern = AclPattern.LITERAL

    def __str__(self) -> str:
        return f"{self.resource.name} {self.pattern.name}:{self.name}"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An entry, and the resources that it is bound to."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.pattern} {self.entry}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects bindings: those that have what each field names. None and ANY select every value.

    With the pattern MATCH and a name it selects what applies to the resource of that name: its own literal
    entries, those of its prefixes, and those of `ANY_NAME`.
    """

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: AclPattern = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @classmethod
    def of(cls, binding: AclBinding) -> AclFilter:
        """The filter that selects exactly this binding."""
        pattern, entry = binding.pattern, binding.entry
        return cls(
            pattern.resource,
            pattern.name,
            pattern.pattern,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission,
        )

    def selects(self, pattern: ResourcePattern) -> bool:
        """Whether entries of this pattern may be selected."""
        if self.resource not in (AclResource.ANY, pattern.resource):
            return False
        if self.pattern not in (AclPattern.ANY, AclPattern.MATCH, pattern.pattern):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern is not AclPattern.MATCH:
            return False
        if pattern.pattern is AclPattern.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == ANY_NAME

    def selects_entry(self, entry: AclEntry) -> bool:
        """Whether an entry is selected if its pattern is."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    @property
    def exact_patterns(self) -> tuple[ResourcePattern, ...]:
        """The patterns that the filter names exactly; none if it selects by kind, or by MATCH."""
        if self.name is None or self.resource is AclResource.ANY or self.pattern is AclPattern.MATCH:
            return ()
        both = (AclPattern.LITERAL, AclPattern.PREFIXED)
        patterns = both if self.pattern is AclPattern.ANY else (self.pattern,)
        return tuple(ResourcePattern(self.resource, self.name, each) for each in patterns)


def acl_name(member: enum.IntEnum) -> str:
    """The name of an operation, permission, resource or pattern as Kafka writes it: DescribeConfigs."""
    return "".join(part.capitalize() for part in member.name.split("_"))


def acl_named(kind: type[E], name: str) -> E:
    """The member of this name, in any case, with or without underscores; that of code 0, UNKNOWN, for any
    other name."""
    return kind(_code_named(kind, name))


@lru_cache(maxsize=256)
def _code_named(kind: type[enum.IntEnum], name: str) -> int:
    plain = name.replace("_", "").upper()
    return next((member for member in kind if member.name.replace("_", "") == plain), 0)
