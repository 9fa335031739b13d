"""The access control lists, compiled so that a decision needs a few look-ups. No input, no output.

A decision follows Kafka's AclAuthorizer: entries apply to a resource if their literal pattern has its name or
is `*`, or if its name begins with their prefix. An entry that denies outweighs all that allow. What is
allowed implies more: READ, WRITE, DELETE or ALTER also DESCRIBE, and ALTER_CONFIGS also DESCRIBE_CONFIGS.
What is denied implies nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
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


_OfSubject: TypeAlias = dict[str, OperationBits]
"""What the entries of one subject say, by the name in their pattern."""


class _KindRules:
    """The lists of one kind of resource."""

    __slots__ = ("_by_subject", "_counts", "_lists", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _List] = {}
        self.prefixed: dict[str, _List] = {}
        self.lengths: list[int] = []
        """The lengths of all prefixes, the shortest first."""
        self._counts: Counter[int] = Counter()
        self._by_subject: dict[AclPattern, dict[_Subject, _OfSubject]] = {
            AclPattern.LITERAL: {}, AclPattern.PREFIXED: {},
        }  # fmt: skip
        self._lists = {AclPattern.LITERAL: self.literal, AclPattern.PREFIXED: self.prefixed}

    def copy(self) -> _KindRules:
        """Rules of their own, which say the same."""
        copied = _KindRules()
        copied.literal.update(self.literal)
        copied.prefixed.update(self.prefixed)
        copied.lengths = list(self.lengths)
        copied._counts.update(self._counts)
        for pattern, subjects in self._by_subject.items():
            copied._by_subject[pattern] = {subject: dict(names) for subject, names in subjects.items()}
        return copied

    def put(self, pattern: AclPattern, name: str, entries: Iterable[AclEntry]) -> None:
        """Have these entries for a pattern, and no others: it costs as much as they are, not as all are."""
        subjects, lists = self._by_subject[pattern], self._lists[pattern]
        was_there = name in lists
        for subject in lists.pop(name, ()):
            names = subjects[subject]
            del names[name]
            if not names:
                del subjects[subject]
        compiled = _compiled(entries)
        if compiled:
            lists[name] = compiled
        for subject, bits in compiled.items():
            subjects.setdefault(subject, {})[name] = bits
        if pattern is AclPattern.PREFIXED and was_there != bool(compiled):
            self._counts[len(name)] += 1 if compiled else -1
            if self._counts[len(name)] == (1 if compiled else 0):
                self.lengths = sorted(length for length, count in self._counts.items() if count)

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

    def of_subject(self, subject: _Subject) -> Iterator[tuple[bool, str, OperationBits]]:
        """The patterns whose lists name a subject, as (is prefixed, name, what they say of it)."""
        for pattern, subjects in self._by_subject.items():
            for name, bits in subjects.get(subject, {}).items():
                yield pattern is AclPattern.PREFIXED, name, bits


_NO_RULES = _KindRules()


class AclRules:
    """All access control lists."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[AclResource, _KindRules] = {}

    def copy(self) -> AclRules:
        """Rules of their own, which say the same, to be changed in several turns of the reactor."""
        copied = AclRules()
        copied._kinds = {resource: rules.copy() for resource, rules in self._kinds.items()}
        return copied

    def change(self, changes: Acls) -> None:
        """Have other entries for some patterns; none removes a pattern."""
        for pattern, entries in changes.items():
            rules = self._kinds.get(pattern.resource)
            if rules is None:
                rules = self._kinds[pattern.resource] = _KindRules()
            rules.put(pattern.pattern, pattern.name, entries)

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
