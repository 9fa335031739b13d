"""From requests to the table: who asks, for what, and whether this broker is the one to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed

from broker.handler import RequestContext
from broker.network.connection import ServerConnection
from broker.ownership import standings
from broker.ownership.answers import Standings
from broker.ownership.homes import Homes
from broker.ownership.operations import Asker
from coordinator.ownership.records import OWNER_BYTES_MAX, Owner, ResourceKey, owner_bytes
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.ownership import NO_PARTITION, PRODUCERS_GROUP, Access, ResourceStanding

NAME_LENGTH_MAX = 255
"""Characters of a group, an owner id, a name: they stand in znodes."""
RESOURCES_MAX = 100
"""Resources that one request may have written together: a ZooKeeper request takes 1 MB."""


class NamedResource(Protocol):
    """A resource in a request."""

    name: str
    partition: int


N = TypeVar("N", bound=NamedResource)


def connection_of(call: RequestContext) -> ServerConnection:
    """The connection that asks. Raises BrokerError INVALID_REQUEST for the broker itself: it owns nothing."""
    if call.connection is None:
        raise error_for(ErrorCode.INVALID_REQUEST, "an owner is a connection, and this request came by none")
    return call.connection


def asker_of(
    call: RequestContext,
    group: str,
    owner_id: str,
    session_timeout_ms: int = 0,
    access: int = Access.NONE,
    writer_client_id: str | None = None,
    writer_principal: str | None = None,
) -> Asker:
    """Who asks. Raises BrokerError INVALID_REQUEST."""
    connection = connection_of(call)
    _check_name("owner id", owner_id)
    for what, text in (("writer_client_id", writer_client_id), ("writer_principal", writer_principal)):
        if text is not None:
            _check_name(what, text)
    if not 0 <= access <= Access.READ | Access.WRITE:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"access {access} is none of 1 (write), 2 (read), 3 (both)"
        )
    owner = Owner(
        owner_id,
        call.client_id[:NAME_LENGTH_MAX],
        call.principal[:NAME_LENGTH_MAX],
        connection.peer.host,
        session_timeout_ms,
        Access(access),
        writer_client_id,
        writer_principal,
    )
    taken = owner_bytes(owner)
    if taken > OWNER_BYTES_MAX:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"owner id, client id, principal, host and what is bound take {taken} bytes together, of "
            f"{OWNER_BYTES_MAX} that they may: characters beyond ASCII take six",
        )
    return Asker(group, owner, connection.id)


def check_group(group: str) -> None:
    """Raises BrokerError INVALID_REQUEST for what is no group of the own API."""
    _check_name("group", group)


def check_resources(group: str, resources: Sequence[NamedResource], resources_max: int | None = None) -> None:
    """Raises BrokerError INVALID_REQUEST, and DUPLICATE_RESOURCE where one is named twice."""
    if group != PRODUCERS_GROUP:
        check_group(group)
    if not resources:
        raise error_for(ErrorCode.INVALID_REQUEST, "the request names no resource")
    if resources_max is not None and len(resources) > resources_max:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"the request names {len(resources)} resources, at most {resources_max} are taken at a time",
        )
    for resource in resources:
        _check_name("name", resource.name)
        if resource.partition < NO_PARTITION or (
            resource.partition == NO_PARTITION and group == PRODUCERS_GROUP
        ):
            raise error_for(
                ErrorCode.INVALID_REQUEST, f"{resource.name} has no partition {resource.partition}"
            )
    if len({(resource.name, resource.partition) for resource in resources}) != len(resources):
        raise error_for(ErrorCode.DUPLICATE_RESOURCE, "the request names a resource twice")


def _check_name(what: str, text: str) -> None:
    if not 0 < len(text) <= NAME_LENGTH_MAX:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"the {what} has {len(text)} characters, not 1 to {NAME_LENGTH_MAX}"
        )


def ready(homes: Homes, group: str, resources: Iterable[NamedResource]) -> Deferred[None]:
    """Fires when it is known who owns the names among `resources`; where that cannot be had, `locate` says
    so."""
    if all(resource.partition != NO_PARTITION for resource in resources):
        return succeed(None)
    try:
        return homes.ready(group).addErrback(lambda failure: failure.trap(BrokerError) and None)
    except BrokerError:
        return succeed(None)


def locate(
    homes: Homes, group: str, resources: Sequence[N]
) -> tuple[list[tuple[N, ResourceKey]], dict[int, ResourceStanding]]:
    """The resources that this broker decides about, and by their places in the request what is to be answered
    for the others."""
    found: list[tuple[N, ResourceKey]] = []
    elsewhere: dict[int, ResourceStanding] = {}
    for number, resource in enumerate(resources):
        try:
            found.append((resource, homes.locate(group, resource.name, resource.partition)))
        except BrokerError as error:
            elsewhere[number] = unlocated(resource, error)
    return found, elsewhere


def unlocated(resource: NamedResource, error: BrokerError) -> ResourceStanding:
    """What is answered for a resource that others decide about."""
    return ResourceStanding(
        name=resource.name,
        partition=resource.partition,
        error_code=error.code,
        error_message=error.message,
    )


def merged(elsewhere: dict[int, ResourceStanding], located: Iterable[ResourceStanding]) -> Standings:
    """The answers in the order of the request."""
    answers = list(located)
    for number in sorted(elsewhere):
        answers.insert(number, elsewhere[number])
    return answers


def each(
    homes: Homes,
    group: str,
    resources: Sequence[N],
    ask: Callable[[list[tuple[N, ResourceKey]]], Deferred[Standings]],
) -> Deferred[Standings]:
    """Ask for those resources that this broker decides about, each by itself."""

    def located(_: None) -> Deferred[Standings] | Standings:
        found, elsewhere = locate(homes, group, resources)
        if not found:
            return merged(elsewhere, ())
        return ask(found).addCallback(lambda answers: merged(elsewhere, answers))

    return ready(homes, group, resources).addCallback(located)


def all_or_none(
    homes: Homes,
    group: str,
    resources: Sequence[N],
    ask: Callable[[list[tuple[N, ResourceKey]]], Deferred[Standings]],
) -> Deferred[Standings]:
    """Ask for all resources, if this broker decides about all of them."""

    def located(_: None) -> Deferred[Standings] | Standings:
        found, elsewhere = locate(homes, group, resources)
        if not elsewhere:
            return ask(found)
        return merged(
            elsewhere, [standings.blank(key, ErrorCode.OPERATION_NOT_ATTEMPTED) for _, key in found]
        )

    return ready(homes, group, resources).addCallback(located)
