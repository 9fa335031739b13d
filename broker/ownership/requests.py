"""What the ownership handlers share: checks of requests, and which of their resources this broker decides
about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.ownership import standings
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.decided import DecidedResources
from holdfast_log.broker.ownership.resources import Requester
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.coordinator.ownership.credentials import SECRET_BYTES_MAX, SECRET_BYTES_MIN, digest_of
from holdfast_log.coordinator.ownership.records import OWNER_BYTES_MAX, Owner, ResourceKey, owner_bytes
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import NO_PARTITION, PRODUCERS_GROUP, Access, ResourceStanding

NAME_LENGTH_MAX = 255
"""Maximum length of a group, an owner id or a name, in characters: znodes contain them."""
PRINCIPAL_LENGTH_MAX = 1000
"""Maximum length of a principal that a claim names, in characters: as in access control lists."""
RESOURCES_MAX = 100
"""Maximum number of resources written by one request: ZooKeeper limits its requests to 1 MB."""


class NamedResource(Protocol):
    """A resource in a request."""

    name: str
    partition: int


N = TypeVar("N", bound=NamedResource)

Judge: TypeAlias = "Callable[[NamedResource], BrokerError | None]"
"""Why the client of a request may not do what it asks to a resource; None if it may."""


def connection_of(context: RequestContext) -> ServerConnection:
    """The connection of a request. Raises BrokerError INVALID_REQUEST for a request of the broker itself."""
    if context.connection is None:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            "an owner needs a connection, and this request came from the broker itself",
        )
    return context.connection


def requester_of(
    context: RequestContext,
    group: str,
    owner_id: str,
    session_timeout_ms: int = 0,
    access: int = Access.NONE,
    writer_client_id: str | None = None,
    writer_principal: str | None = None,
    *,
    secret: bytes = b"",
    covers_topic: bool = False,
) -> Requester:
    """The sender of a request. Raises BrokerError INVALID_REQUEST for names or a secret of a wrong length,
    and for an unknown access."""
    connection = connection_of(context)
    _check_name("owner id", owner_id)
    if writer_client_id is not None:
        _check_name("writer_client_id", writer_client_id)
    if writer_principal is not None:
        _check_name("writer_principal", writer_principal, PRINCIPAL_LENGTH_MAX)
    if secret and not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"the secret has {len(secret)} bytes, not {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}",
        )
    if covers_topic and not secret:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            "a claim of a whole topic needs a secret: the leaders of added partitions know its owner by it",
        )
    if not 0 <= access <= Access.READ | Access.WRITE:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"access {access} is not one of 1 (write), 2 (read), 3 (both)"
        )
    owner = Owner(
        owner_id,
        context.client_id[:NAME_LENGTH_MAX],
        context.principal,  # Whole: it is compared, and two must not become one. The size is checked below.
        connection.peer.host,
        session_timeout_ms,
        Access(access),
        writer_client_id,
        writer_principal,
        secret_digest=digest_of(secret),
        covers_topic=covers_topic,
    )
    taken = owner_bytes(owner)
    if taken > OWNER_BYTES_MAX:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"owner id, client id, principal, host, writer_client_id and writer_principal take {taken} bytes "
            f"together, at most {OWNER_BYTES_MAX} are allowed; a character beyond ASCII takes six",
        )
    return Requester(group, owner, connection.id)


def check_group(group: str) -> None:
    """Raises BrokerError INVALID_REQUEST unless a group of the own API can have this name."""
    _check_name("group", group)


def check_resources(group: str, resources: Sequence[NamedResource], resources_max: int | None = None) -> None:
    """Raises BrokerError INVALID_REQUEST, and DUPLICATE_RESOURCE if a resource is named twice."""
    if group != PRODUCERS_GROUP:
        check_group(group)
    if not resources:
        raise error_for(ErrorCode.INVALID_REQUEST, "the request names no resource")
    if resources_max is not None and len(resources) > resources_max:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"the request names {len(resources)} resources; at most {resources_max} are allowed",
        )
    for resource in resources:
        _check_name("name", resource.name)
        if resource.partition < NO_PARTITION or (
            resource.partition == NO_PARTITION and group == PRODUCERS_GROUP
        ):
            raise error_for(
                ErrorCode.INVALID_REQUEST, f"{resource.partition} is not a partition of {resource.name}"
            )
    if len({(resource.name, resource.partition) for resource in resources}) != len(resources):
        raise error_for(ErrorCode.DUPLICATE_RESOURCE, "the request names a resource more than once")


def _check_name(what: str, text: str, length_max: int = NAME_LENGTH_MAX) -> None:
    if not 0 < len(text) <= length_max:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"the {what} has {len(text)} characters, not 1 to {length_max}"
        )


def read_names(decided: DecidedResources, group: str, resources: Iterable[NamedResource]) -> Deferred[None]:
    """Fires once the names among `resources` have been read or have failed to be: locating them reports
    that."""
    if all(resource.partition != NO_PARTITION for resource in resources):
        return succeed(None)
    try:
        return decided.read_names(group).addErrback(lambda failure: failure.trap(BrokerError) and None)
    except BrokerError:
        return succeed(None)


def _locate(
    decided: DecidedResources, group: str, resources: Sequence[N], denied: Mapping[int, ResourceStanding]
) -> tuple[list[tuple[N, ResourceKey]], dict[int, ResourceStanding]]:
    """The resources that this broker decides about and that are not `denied`; and the standings of the
    others, by place in the request."""
    found: list[tuple[N, ResourceKey]] = []
    elsewhere = dict(denied)
    for number, resource in enumerate(resources):
        if number in denied:
            continue
        try:
            found.append((resource, decided.locate(group, resource.name, resource.partition)))
        except BrokerError as error:
            elsewhere[number] = unlocated(resource, error)
    return found, elsewhere


def _denied(resources: Sequence[N], judge: Judge | None) -> dict[int, ResourceStanding]:
    """The standings of resources that `judge` does not allow, by place in the request."""
    if judge is None:
        return {}
    denied = ((number, resource, judge(resource)) for number, resource in enumerate(resources))
    return {number: unlocated(resource, error) for number, resource, error in denied if error is not None}


def unlocated(resource: NamedResource, error: BrokerError) -> ResourceStanding:
    """The standing of a resource that this broker does not decide about."""
    return ResourceStanding(
        name=resource.name,
        partition=resource.partition,
        error_code=error.code,
        error_message=error.message,
    )


def merged(elsewhere: dict[int, ResourceStanding], located: Iterable[ResourceStanding]) -> Standings:
    """The standings in the order of the request: those `elsewhere` have their places in it."""
    answers = list(located)
    for number in sorted(elsewhere):
        answers.insert(number, elsewhere[number])
    return answers


def located(decided: DecidedResources, group: str, resource: NamedResource) -> Deferred[ResourceKey]:
    """Fires with the key of a resource that this broker decides about. Fails with, or raises, what
    `DecidedResources.locate` raises."""
    read = succeed(None) if resource.partition != NO_PARTITION else decided.read_names(group)
    return read.addCallback(lambda _: decided.locate(group, resource.name, resource.partition))


def for_each(
    decided: DecidedResources,
    group: str,
    resources: Sequence[N],
    submit: Callable[[list[tuple[N, ResourceKey]]], Deferred[Standings]],
    judge: Judge | None = None,
) -> Deferred[Standings]:
    """Call `submit` with those resources that this broker decides about and that `judge` allows. Each
    succeeds or fails separately."""

    denied = _denied(resources, judge)

    def located(_: None) -> Deferred[Standings] | Standings:
        found, elsewhere = _locate(decided, group, resources, denied)
        if not found:
            return merged(elsewhere, ())
        return submit(found).addCallback(lambda answers: merged(elsewhere, answers))

    if len(denied) == len(resources):
        return succeed(merged(denied, ()))
    return read_names(decided, group, resources).addCallback(located)


def for_all_or_none(
    decided: DecidedResources,
    group: str,
    resources: Sequence[N],
    submit: Callable[[list[tuple[N, ResourceKey]]], Deferred[Standings]],
    judge: Judge | None = None,
) -> Deferred[Standings]:
    """Call `submit` with all resources, if this broker decides about all of them and `judge` allows all;
    otherwise submit none."""

    denied = _denied(resources, judge)

    def located(_: None) -> Deferred[Standings] | Standings:
        found, elsewhere = _locate(decided, group, resources, denied)
        if not elsewhere:
            return submit(found)
        return merged(
            elsewhere, [standings.outcome(key, ErrorCode.OPERATION_NOT_ATTEMPTED) for _, key in found]
        )

    return read_names(decided, group, resources).addCallback(located)
