"""The access control lists, compiled so that a decision needs a few look-ups. Pure: values and decisions.

A decision follows Kafka's AclAuthorizer: entries apply to a resource if their literal pattern has its name or
is `*`, or if its name begins with their prefix. An entry that denies outweighs all that allow. What is
allowed implies more: READ, WRITE, DELETE or ALTER also DESCRIBE, and ALTER_CONFIGS also DESCRIBE_CONFIGS.
What is denied implies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from holdfast_log.broker.quotas.entities import normal_address
from holdfast_log.coordinator.cluster.acls import Acls
from holdfast_log.protocol.acl_bindings import EVERY_HOST, EVERYBODY, AclEntry
from holdfast_log.protocol.acls import ANY_NAME, AclOperation, AclPattern, AclPermission, AclResource

_Subject: TypeAlias = tuple[str, str]
"""A principal and a host, either of which may stand for all."""


class OperationBits(NamedTuple):
    """Sets of operations, one bit for each code: those allowed, and those denied."""

    allowed: int
    denied: int


_List: TypeAlias = dict[_Subject, OperationBits]
"""What the entries of one pattern say, by the subject that they name."""

ALL_OPERATIONS = sum(1 << each for each in AclOperation if each > AclOperation.ANY)
_IMPLY_DESCRIBE = sum(
    1 << each for each in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
)
_NOTHING = OperationBits(0, 0)


def normal_host(host: str) -> str:
    """An IP address in its shortest form, so that equal addresses are equal text; any other text as it is."""
    return normal_address(host) or host


class _KindRules:
    """The lists of one kind of resource. Immutable."""

    __slots__ = ("_by_subject", "lengths", "literal", "prefixed")

    def __init__(self, literal: Mapping[str, _List], prefixed: Mapping[str, _List]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.lengths = sorted({len(prefix) for prefix in prefixed})
        self._by_subject: dict[_Subject, list[tuple[bool, str, OperationBits]]] | None = None

    def lists(self, name: str) -> Iterator[_List]:
        """The lists that apply to the resource of this name."""
        for literal in (name, ANY_NAME) if name != ANY_NAME else (name,):
            if (found := self.literal.get(literal)) is not None:
                yield found
        for length in self.lengths:
            if length > len(name):
                return
            if (found := self.prefixed.get(name[:length])) is not None:
                yield found

    def of_subject(self, subject: _Subject) -> Iterable[tuple[bool, str, OperationBits]]:
        """The patterns whose lists name a subject, as (is prefixed, name, what they say of it)."""
        if self._by_subject is None:
            self._by_subject = {}
            for is_prefixed, lists in ((False, self.literal), (True, self.prefixed)):
                for name, entries in lists.items():
                    for each, bits in entries.items():
                        self._by_subject.setdefault(each, []).append((is_prefixed, name, bits))
        return self._by_subject.get(subject, ())


_NO_RULES = _KindRules({}, {})


class AclRules:
    """One immutable snapshot of all access control lists."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: Mapping[AclResource, _KindRules] | None = None) -> None:
        self._kinds = kinds or {}

    def with_changes(self, changes: Acls) -> AclRules:
        """The rules with other entries for some patterns; none removes a pattern."""
        kinds = dict(self._kinds)
        for resource in {pattern.resource for pattern in changes}:
            known = kinds.get(resource, _NO_RULES)
            lists = {
                AclPattern.LITERAL: dict(known.literal),
                AclPattern.PREFIXED: dict(known.prefixed),
            }
            for pattern, entries in changes.items():
                if pattern.resource is not resource:
                    continue
                if entries:
                    lists[pattern.pattern][pattern.name] = _compiled(entries)
                else:
                    lists[pattern.pattern].pop(pattern.name, None)
            kinds[resource] = _KindRules(lists[AclPattern.LITERAL], lists[AclPattern.PREFIXED])
        return AclRules(kinds)

    def allowed(self, principal: str, host: str, resource: AclResource, name: str) -> int | None:
        """The operations on a resource that a principal may carry out from a host, one bit for each code.
        None if no list applies to the resource at all."""
        subjects = _subjects(principal, host)
        allowed = denied = 0
        is_listed = False
        for entries in self._kinds.get(resource, _NO_RULES).lists(name):
            is_listed = True
            for subject in subjects:
                bits = entries.get(subject, _NOTHING)
                allowed |= bits.allowed
                denied |= bits.denied
        return _with_implied(allowed) & ~denied if is_listed else None

    def allows_some(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclResource,
        *,
        allows_unlisted: bool = False,
    ) -> bool:
        """Whether there may be a resource of the kind on which a principal may carry out an operation, as
        Kafka answers it (KIP-679): by entries that name the operation, or all, and not by what another one
        implies. With `allows_unlisted` everything is allowed that no list names."""
        kind = self._kinds.get(resource, _NO_RULES)
        bit = 1 << operation
        denied: dict[bool, set[str]] = {False: set(), True: set()}
        allowed: list[tuple[bool, str]] = []
        for subject in _subjects(principal, host):
            for is_prefixed, name, bits in kind.of_subject(subject):
                if bits.denied & bit:
                    denied[is_prefixed].add(name)
                if bits.allowed & bit:
                    allowed.append((is_prefixed, name))
        literals, prefixes = denied[False], denied[True]
        if ANY_NAME in literals:
            return False
        if allows_unlisted:
            return True
        return any(
            (not is_prefixed and name == ANY_NAME)
            or ((is_prefixed or name not in literals) and not _begins_with_any(name, prefixes))
            for is_prefixed, name in allowed
        )


def _begins_with_any(name: str, prefixes: set[str]) -> bool:
    return bool(prefixes) and any(name[:length] in prefixes for length in range(len(name) + 1))


def _subjects(principal: str, host: str) -> tuple[_Subject, ...]:
    """The subjects in entries that a client is."""
    return (principal, host), (principal, EVERY_HOST), (EVERYBODY, host), (EVERYBODY, EVERY_HOST)


def _with_implied(allowed: int) -> int:
    if allowed & _IMPLY_DESCRIBE:
        allowed |= 1 << AclOperation.DESCRIBE
    if allowed & 1 << AclOperation.ALTER_CONFIGS:
        allowed |= 1 << AclOperation.DESCRIBE_CONFIGS
    return allowed


def _compiled(entries: Iterable[AclEntry]) -> _List:
    compiled: _List = {}
    for entry in entries:
        subject = entry.principal, normal_host(entry.host)
        known = compiled.get(subject, _NOTHING)
        bits = _bits(entry)
        compiled[subject] = OperationBits(known.allowed | bits.allowed, known.denied | bits.denied)
    return compiled


def _bits(entry: AclEntry) -> OperationBits:
    if not entry.is_known:
        return _NOTHING
    bits = ALL_OPERATIONS if entry.operation is AclOperation.ALL else 1 << entry.operation
    return OperationBits(bits, 0) if entry.permission is AclPermission.ALLOW else OperationBits(0, bits)
