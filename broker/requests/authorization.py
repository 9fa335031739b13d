"""Who may do what: the seam between handlers, which meet resources, and what knows the rules.

A handler asks `RequestContext.may` for each resource that it meets. An `Authorizer` decides; this module adds
what holds whatever the rules are: brokers may do everything, and what is denied goes to the audit log.
`access_rules` lists what each API asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.requests.audit import Denials
from holdfast_log.protocol.acls import AclOperation, AclResource


class Authorizer(Protocol):
    """Decides by a client's principal, such as "User:alice", and by the IP address that it comes from.

    Both methods are called on the reactor while a request is handled: they may not block.
    """

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Whether the principal may do this to the resource of that kind and name. What one operation implies
        for another (READ for DESCRIBE) is the authorizer's affair."""
        ...

    def allows_some(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the principal may do this to any resource of that kind, whatever its name (KIP-679)."""
        ...


@runtime_checkable
class AnnouncesChanges(Protocol):
    """An authorizer whose rules may change while the broker runs."""

    def add_change_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time after the rules have changed."""
        ...


def call_on_change(authorizer: object, listener: Callable[[], None]) -> None:
    """Call `listener` each time after the rules have changed, if the authorizer announces that."""
    if isinstance(authorizer, AnnouncesChanges):
        authorizer.add_change_listener(listener)


class ClientRights:
    """What clients may do, by the rules of an authorizer. Connections of brokers may do everything."""

    def __init__(self, authorizer: Authorizer, denials: Denials) -> None:
        self._authorizer = authorizer
        self._denials = denials

    def may(
        self,
        connection: ServerConnection,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        is_noted: bool = True,
    ) -> bool:
        """Whether the client may do this. A denied operation is logged if it `is_noted`: not if the broker
        asks in place of the client, to leave out what the client may not see, or to look for another
        right."""
        if connection.is_broker or self._authorizer.allows(
            connection.principal, connection.peer.host, operation, resource, name
        ):
            return True
        if is_noted:
            self._denials.note(connection, operation, resource, name)
        return False

    def may_quietly(
        self, connection: ServerConnection, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """As `may`, without a line in the log."""
        return self.may(connection, operation, resource, name, is_noted=False)

    def may_some(self, connection: ServerConnection, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the client may do this to any resource of the kind."""
        return connection.is_broker or self._authorizer.allows_some(
            connection.principal, connection.peer.host, operation, resource
        )

    def may_principal(
        self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Whether a principal may do this whose connection may be closed."""
        return self._authorizer.allows(principal, host, operation, resource, name)
