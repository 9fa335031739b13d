"""The authorizer: decides by the access control lists, by super users, and by a cache of what was decided."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from holdfast_log.broker.security.rules import ALL_OPERATIONS, AclRules, normal_host
from holdfast_log.coordinator.cluster.acls import Acls
from holdfast_log.protocol.acls import AclOperation, AclResource

_CACHED_MAX = 10_000
_CACHED_NAME_MAX = 1_000
"""Decisions about longer names are not kept: hostile names must not fill the memory."""

_Asked: TypeAlias = tuple[str, str, str]
"""Principal, host, and name of the resource."""


class AclAuthorizer:
    """Decides who may do what, as Kafka's AclAuthorizer does.

    `super_users` are principals such as "User:admin", who may do everything. A resource that no list names is
    closed to everybody else, or open to everybody with `allows_unlisted`. Nothing is allowed before the rules
    are known.
    """

    def __init__(self, super_users: Collection[str] = (), *, allows_unlisted: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_unlisted = allows_unlisted
        self._rules = AclRules()
        self._coming: AclRules | None = None
        """The rules with a part of a change that is not in force yet."""
        self._listeners: list[Callable[[], None]] = []
        self._allowed: list[dict[_Asked, int]] = [{} for _ in range(max(AclResource) + 1)]
        """The operations allowed, one bit for each code, by the code of the resource's kind: to look up a
        number costs less than to hash a member of an enumeration."""
        self._some: dict[tuple[str, str, AclOperation, AclResource], bool] = {}

    def add_change_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time after the rules have changed."""
        self._listeners.append(listener)

    def prepare(self, changes: Acls) -> None:
        """Take a part of a change that is too large for one turn of the reactor. Nothing of it is in force
        until `rules_changed` has the last part."""
        if self._coming is None:
            self._coming = self._rules.copy()
        self._coming.change(changes)

    def rules_changed(self, changes: Acls) -> None:
        """Take new entries for some patterns; none removes a pattern."""
        if self._coming is not None:
            self._rules, self._coming = self._coming, None
        self._rules.change(changes)
        for allowed in self._allowed:
            allowed.clear()
        self._some.clear()
        for listener in self._listeners:
            listener()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Whether a principal who connects from an IP address may do this to a resource."""
        if principal in self._super_users:
            return True
        asked = principal, host, name
        allowed = self._allowed[resource].get(asked)
        if allowed is None:
            allowed = self._decide(resource, asked)
        return bool(allowed >> operation & 1)

    def allows_some(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Whether a principal may do this to any resource of the kind, whatever its name (KIP-679)."""
        if principal in self._super_users:
            return True
        asked = principal, host, operation, resource
        allowed = self._some.get(asked)
        if allowed is None:
            if len(self._some) >= _CACHED_MAX:
                self._some.clear()
            allowed = self._some[asked] = self._rules.allows_some(
                principal, normal_host(host), operation, resource, allows_unlisted=self._allows_unlisted
            )
        return allowed

    def _decide(self, resource: AclResource, asked: _Asked) -> int:
        principal, host, name = asked
        allowed = self._rules.allowed(principal, normal_host(host), resource, name)
        if allowed is None:
            allowed = ALL_OPERATIONS if self._allows_unlisted else 0
        if len(name) <= _CACHED_NAME_MAX:
            known = self._allowed[resource]
            if len(known) >= _CACHED_MAX:
                known.clear()
            known[asked] = allowed
        return allowed
