"""An authorizer for tests, whose rules a test gives and changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.acls import CLUSTER_NAME, AclOperation, AclResource

Rule: TypeAlias = "tuple[AclOperation, AclResource]"


class Rules:
    """Denies these operations on resources of a kind: all of them, or only those `named`. None: denies
    everything. `asked` is what brokers wanted to know."""

    def __init__(self, denied: set[Rule] | None, named: set[str] | None = None) -> None:
        self.denied = denied
        self.named = named
        self.asked: list[tuple[str, str, AclOperation, AclResource, str]] = []
        self._listeners: list[Callable[[], None]] = []

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        self.asked.append((principal, host, operation, resource, name))
        if self.denied is None:
            return False
        is_meant = self.named is None or name in self.named
        return not (is_meant and (operation, resource) in self.denied)

    def allows_some(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        return self.denied is not None and (operation, resource) not in self.denied

    def add_change_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def change(self, denied: set[Rule] | None, named: set[str] | None = None) -> None:
        """Deny this from now on, and announce it."""
        self.denied, self.named = denied, named
        for listener in self._listeners:
            listener()


class JudgedContext(RequestContext):
    """The context of a request from a client whom rules judge, without a connection."""

    __slots__ = ("_rules",)

    def __init__(self, version: int, rules: Rules) -> None:
        super().__init__(version, "", None)
        self._rules = rules

    @property
    def is_judged(self) -> bool:
        return True

    def may(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        return self._rules.allows("User:test", "127.0.0.1", operation, resource, name)

    def may_some(self, operation: AclOperation, resource: AclResource) -> bool:
        return self._rules.allows_some("User:test", "127.0.0.1", operation, resource)
