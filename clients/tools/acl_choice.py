"""What the options of scripts/acls.sh name: resources, entries and filters, by the rules of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import click

from holdfast_log.protocol.acl_bindings import (
    EVERY_HOST,
    AclBinding,
    AclEntry,
    AclFilter,
    ResourcePattern,
    acl_name,
    acl_named,
)
from holdfast_log.protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

OPERATIONS = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    AclResource.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE),
    AclResource.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResource.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that there are on each kind of resource, besides ALL."""

_PRODUCER = {
    AclResource.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
}
_CONSUMER = {
    AclResource.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResource.GROUP: (AclOperation.READ,),
}


@dataclass(frozen=True, slots=True)
class AclChoice:
    """The options that name resources, principals, hosts and operations."""

    topic: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    transactional_id: tuple[str, ...] = ()
    delegation_token: tuple[str, ...] = ()
    user_principal: tuple[str, ...] = ()
    cluster: bool = False
    resource_pattern_type: str = "literal"
    operation: tuple[str, ...] = ()
    allow_principal: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    deny_principal: tuple[str, ...] = ()
    deny_host: tuple[str, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def check(self) -> None:
        """Raises click.UsageError for options that contradict one another."""
        role = "--producer" if self.producer else "--consumer"
        if (self.producer or self.consumer) and (self.operation or self.deny_principal or self.deny_host):
            raise click.UsageError(f"{role} allows what it needs: give no --operation, and nothing to deny")
        if self.producer and not self.topic:
            raise click.UsageError("--producer needs --topic")
        if self.idempotent and not self.producer:
            raise click.UsageError("--idempotent goes with --producer")
        if self.consumer and not (self.topic and self.group):
            raise click.UsageError("--consumer needs --topic and --group")
        if self.consumer and not self.producer and (self.cluster or self.transactional_id):
            raise click.UsageError("--consumer goes without --cluster and --transactional-id")
        if (self.allow_host and not self.allow_principal) or (self.deny_host and not self.deny_principal):
            raise click.UsageError("a host goes with a principal: --allow-principal, --deny-principal")
        if self.pattern is AclPattern.PREFIXED and (self.cluster or self.idempotent):
            raise click.UsageError("the cluster has only entries of --resource-pattern-type literal")

    @property
    def pattern(self) -> AclPattern:
        return acl_named(AclPattern, self.resource_pattern_type)

    def resources(self) -> list[tuple[AclResource, str]]:
        """The resources named, without those that --idempotent adds."""
        named = [
            (AclResource.TOPIC, self.topic),
            (AclResource.GROUP, self.group),
            (AclResource.TRANSACTIONAL_ID, self.transactional_id),
            (AclResource.DELEGATION_TOKEN, self.delegation_token),
            (AclResource.USER, self.user_principal),
            (AclResource.CLUSTER, (CLUSTER_NAME,) if self.cluster else ()),
        ]
        return [(kind, name.strip()) for kind, names in named for name in names]

    def entries(self) -> dict[tuple[AclResource, str], list[AclEntry]]:
        """The entries of each resource named; of one without principals there are none.

        Raises click.UsageError."""
        self.check()
        found: dict[tuple[AclResource, str], dict[AclEntry, None]] = {}
        for resource, operations in self._operations():
            self._check_operations(resource[0], operations)
            found.setdefault(resource, {}).update(dict.fromkeys(self._entries(operations)))
        if not found:
            raise click.UsageError(
                "at least one resource is needed: --topic, --group, --cluster, --transactional-id, "
                "--delegation-token or --user-principal"
            )
        return {resource: list(entries) for resource, entries in found.items()}

    def _operations(self) -> Iterable[tuple[tuple[AclResource, str], Sequence[AclOperation]]]:
        if not self.producer and not self.consumer:
            given = [_operation(name) for name in self.operation] or [AclOperation.ALL]
            yield from ((resource, given) for resource in self.resources())
        for is_chosen, needed in ((self.producer, _PRODUCER), (self.consumer, _CONSUMER)):
            if is_chosen:
                for resource in self.resources():
                    if resource[0] in needed and resource[0] is not AclResource.CLUSTER:
                        yield resource, needed[resource[0]]
        if self.idempotent:
            yield (AclResource.CLUSTER, CLUSTER_NAME), _PRODUCER[AclResource.CLUSTER]

    @staticmethod
    def _check_operations(kind: AclResource, operations: Sequence[AclOperation]) -> None:
        possible = (*OPERATIONS[kind], AclOperation.ALL)
        if not set(operations) <= set(possible):
            names = ", ".join(map(acl_name, possible))
            raise click.UsageError(f"the operations on a {_words(kind)} are {names}")

    def _entries(self, operations: Sequence[AclOperation]) -> Iterable[AclEntry]:
        for principals, hosts, permission in (
            (self.allow_principal, self.allow_host, AclPermission.ALLOW),
            (self.deny_principal, self.deny_host, AclPermission.DENY),
        ):
            for principal, operation, host in product(principals, operations, hosts or (EVERY_HOST,)):
                yield AclEntry(checked_principal(principal), host.strip(), operation, permission)

    # What to do

    def to_add(self) -> dict[ResourcePattern, list[AclEntry]]:
        """The entries to add to each pattern. Raises click.UsageError."""
        if self.pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED):
            raise click.UsageError("--add needs --resource-pattern-type literal or prefixed")
        found = self.entries()
        if not all(found.values()):
            raise click.UsageError("--add needs --allow-principal or --deny-principal")
        return {
            ResourcePattern(kind, name, self._pattern_of(kind)): entries
            for (kind, name), entries in found.items()
        }

    def to_remove(self) -> dict[AclFilter, list[AclEntry]]:
        """The entries to remove from each resource named; none stands for all. Raises click.UsageError."""
        return {
            AclFilter(kind, name, self._pattern_of(kind)): entries
            for (kind, name), entries in self.entries().items()
        }

    def to_list(self) -> list[AclFilter]:
        """What to list: the resources named, or everything. Raises click.UsageError."""
        if self.producer or self.consumer or self.allow_principal or self.deny_principal:
            raise click.UsageError("--list goes with resources and --principal only")
        self.check()
        named = self.resources()
        return [AclFilter(kind, name, self._pattern_of(kind)) for kind, name in named] or [AclFilter()]

    def _pattern_of(self, kind: AclResource) -> AclPattern:
        return AclPattern.LITERAL if kind is AclResource.CLUSTER else self.pattern


def bindings(entries: Iterable[AclEntry], pattern: ResourcePattern) -> list[AclBinding]:
    return [AclBinding(pattern, entry) for entry in entries]


def exact_filters(wanted: AclFilter, entries: Sequence[AclEntry]) -> list[AclFilter]:
    """Filters for these entries of the resources that `wanted` selects; for all of them if there are none."""
    if not entries:
        return [wanted]
    return [
        AclFilter(
            wanted.resource,
            wanted.name,
            wanted.pattern,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission,
        )
        for entry in entries
    ]


def checked_principal(text: str) -> str:
    """A principal of a type and a name. Raises click.UsageError."""
    kind, separator, name = text.strip().partition(":")
    if not (kind and separator and name):
        raise click.UsageError(f"{text!r} is not of the form type:name, such as User:alice")
    return text.strip()


def _operation(name: str) -> AclOperation:
    found = acl_named(AclOperation, name.strip())
    if found <= AclOperation.ANY:
        names = ", ".join(acl_name(each) for each in AclOperation if each > AclOperation.ANY)
        raise click.UsageError(f"unknown operation {name!r}: expected one of {names}")
    return found


def _words(kind: AclResource) -> str:
    return kind.name.lower().replace("_", " ")
