"""Describing owners, waiters and history of resources (own API, PIP-68), and the forced release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.admin.cluster import describe_cluster
from holdfast_log.clients.admin.topics import by_leader
from holdfast_log.protocol.messages.ownership import NO_PARTITION, Access, LossReason
from holdfast_log.protocol.messages.ownership_sight import (
    DescribedResource,
    DescribeOwnersRequest,
    ForceReleaseRequest,
    OwnershipState,
    ResourceName,
    ResourceToRelease,
)
from holdfast_log.protocol.messages.ownership_tokens import CheckTokenRequest, TokenStanding
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PastOwnership:
    """One grant of a resource. `until_ms` is None, and `reason` NONE, for the grant in force.

    From `start_offset` (None for names) to the next grant's, only this owner has written. Times are in
    ms since the epoch.
    """

    generation: int
    owner_id: str
    start_offset: int | None
    since_ms: int
    until_ms: int | None
    reason: LossReason


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """What the deciding broker knows about a token. `newest` is the token of the newest grant; the checked
    one `is_current` if it is that. `is_held`: it is current, and its owner still has the resource."""

    is_current: bool
    newest: int
    is_held: bool


@dataclass(frozen=True, slots=True)
class OwnershipWaiter:
    """A claimant in the queue. `remaining_ms` is how long it still waits; None if it waits without limit."""

    owner_id: str
    client_id: str
    host: str
    remaining_ms: int | None


@dataclass(frozen=True, slots=True)
class OwnershipDescription:
    """A resource, as the broker that decides about its owner describes it.

    `resource` is a partition, or a name of the application's own; `group` is empty for exclusive producers.
    Without an owner, every field about the owner is None. `sharers` are the ids of producers with shared
    access. Counters start at 0 with the broker: `claims` granted, `steals` among them (from another owner),
    `refusals`, `fenced_appends`, and `mismatches` (expected offsets that did not hold).
    """

    group: str
    resource: TopicPartition | str
    generation: int
    state: OwnershipState
    access: Access
    fence_offset: int | None
    owner_id: str | None
    client_id: str | None
    principal: str | None
    host: str | None
    since_ms: int | None
    session_remaining_ms: int | None
    bound_client_id: str | None
    waiters: tuple[OwnershipWaiter, ...]
    sharers: tuple[str, ...]
    history: tuple[PastOwnership, ...]
    claims: int
    steals: int
    refusals: int
    fenced_appends: int
    mismatches: int


def describe_owners(
    asking: Asking,
    groups: Iterable[str] | None = None,
    resources: Iterable[TopicPartition | str] | None = None,
    *,
    include_history: bool = False,
) -> list[OwnershipDescription]:
    """The owned resources of these groups, or of all; only these partitions and names, or all."""
    request = DescribeOwnersRequest(
        groups=None if groups is None else list(groups),
        resources=None
        if resources is None
        else [ResourceName(name=name, partition=number) for name, number in map(_split, resources)],
        include_history=include_history,
    )
    nodes = [node.id for node in describe_cluster(asking).nodes]
    asking.know_nodes(nodes)
    found = []
    for node in nodes:
        response = asking.ask(node, request, lambda answer: [answer.error_code])
        raise_first([(f"owners at broker {node}", response.error_code, response.error_message)])
        found += [_described(row) for row in response.resources]
    return sorted(found, key=lambda row: (row.group, *_split(row.resource)))


def force_release(
    asking: Asking, group: str, resource: TopicPartition | str, *, generation: int = -1, comment: str = ""
) -> tuple[int, str | None]:
    """Take a resource from its owner, whose connection is closed and who cannot resume."""
    name, number = _split(resource)
    row = ResourceToRelease(name=name, partition=number, generation=generation)
    request = ForceReleaseRequest(group=group, resources=[row], timeout_ms=asking.timeout_ms, comment=comment)
    if isinstance(resource, TopicPartition):
        (node,) = by_leader(asking, [resource])
        response = asking.ask(node, request, lambda answer: [answer.error_code])
    else:
        response, _ = asking.ask_coordinator(
            group,
            request,
            lambda answer: [answer.error_code, *(each.error_code for each in answer.resources)],
        )
    raise_first([(f"group {group}", response.error_code, response.error_message)])
    (released,) = response.resources
    raise_first([(str(resource), released.error_code, released.error_message)])
    return released.generation, released.owner_id


def check_token(asking: Asking, group: str, resource: TopicPartition | str, token: int) -> TokenCheck:
    """Ask the broker that decides about a resource whether `token` is that of the newest grant."""
    name, number = _split(resource)
    request = CheckTokenRequest(group=group, name=name, partition=number, token=token)
    if isinstance(resource, TopicPartition):
        (node,) = by_leader(asking, [resource])
        response = asking.ask(node, request, lambda answer: [answer.error_code])
    else:
        response, _ = asking.ask_coordinator(group, request, lambda answer: [answer.error_code])
    raise_first([(str(resource), response.error_code, response.error_message)])
    return TokenCheck(response.standing == TokenStanding.CURRENT, response.newest, response.is_held)


def _split(resource: TopicPartition | str) -> tuple[str, int]:
    return (resource, NO_PARTITION) if isinstance(resource, str) else (resource.topic, resource.partition)


def _described(row: DescribedResource) -> OwnershipDescription:
    is_owned = row.owner_id is not None
    return OwnershipDescription(
        group=row.group,
        resource=row.name if row.partition == NO_PARTITION else TopicPartition(row.name, row.partition),
        generation=row.generation,
        state=OwnershipState(row.state),
        access=Access(row.access),
        fence_offset=_known(row.fence_offset),
        owner_id=row.owner_id,
        client_id=row.client_id,
        principal=row.principal,
        host=row.host,
        since_ms=row.since_ms if is_owned else None,
        session_remaining_ms=row.session_remaining_ms if is_owned else None,
        bound_client_id=row.writer_client_id,
        waiters=tuple(
            OwnershipWaiter(each.owner_id, each.client_id, each.host, _known(each.remaining_ms))
            for each in row.waiters
        ),
        sharers=tuple(each.owner_id for each in row.sharers),
        history=tuple(
            PastOwnership(
                each.generation,
                each.owner_id,
                _known(each.start_offset),
                each.since_ms,
                _known(each.until_ms),
                LossReason.told(each.reason),
            )
            for each in row.history
        ),
        claims=row.claims,
        steals=row.steals,
        refusals=row.refusals,
        fenced_appends=row.fenced_appends,
        mismatches=row.mismatches,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
