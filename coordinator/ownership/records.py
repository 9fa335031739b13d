"""What is written of owned resources, and where: one znode for each resource, with all its groups.

A partition's znode is named after its topic's id, so it dies with the topic, and a topic that is made again
under the name begins with none. Generations are never taken out: they outlive their owners.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring_ascii
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_uuid, encode_uuid
from coordinator.znodes.layout import OWNED_NAMES, OWNED_TOPICS
from protocol.messages.ownership import Access, LossReason

HISTORY_MAX = 16
"""Grants that are remembered for each group, the present one included."""
HISTORY_BYTES_MAX = 8192
"""What past grants of one resource may take, in all its groups; beyond that the oldest are forgotten."""
GROUPS_MAX = 100
"""Groups of which the generation is remembered though nobody has the resource there."""
FREE_BYTES_MAX = 65_536
"""What their last grants may take."""
OWNER_BYTES_MAX = 3072
"""What the names of an owner may take together. Characters take six bytes where they are not ASCII."""
NO_OFFSET = -1
NEVER_MS = -1
_VERSION = 1
_NUMBERS_BYTES = 410
"""What a grant takes beside its names, at most."""
GRANT_BYTES_MAX = OWNER_BYTES_MAX + _NUMBERS_BYTES


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition, by its topic's id: a topic that was made again is another one. `topic` is for people."""

    topic_id: uuid.UUID
    index: int
    topic: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def path(self) -> str:
        return f"{owned_topic_path(self.topic_id)}/{self.index}"


@dataclass(frozen=True, slots=True)
class NameKey:
    """A name of an application's own, within its group."""

    group: str
    name: str

    def __str__(self) -> str:
        return repr(self.name)

    @property
    def path(self) -> str:
        return f"{owned_names_path(self.group)}/{_quoted(self.name)}"


ResourceKey: TypeAlias = PartitionKey | NameKey


def owned_topic_path(topic_id: uuid.UUID) -> str:
    return f"{OWNED_TOPICS}/{encode_uuid(topic_id)}"


def owned_names_path(group: str) -> str:
    return f"{OWNED_NAMES}/{_quoted(group)}"


def name_of_znode(child: str) -> str:
    """The group, or the name, that a znode under `OWNED_NAMES` is named after."""
    return unquote(child)


def _quoted(text: str) -> str:
    # ZooKeeper takes neither "/" nor the names "." and "..".
    return quote(text, safe="").replace(".", "%2E")


@dataclass(frozen=True, slots=True, order=True)
class ReaderAssignment:
    """What the coordinator of a consumer group has decided of a partition. Later decisions compare greater:
    `epoch` and `offset` tell when that was, see `coordinator.groups.effects.Decision`. `generation` is the
    group's."""

    epoch: int
    offset: int
    generation: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who was granted a resource, and on what terms.

    `owner_id` names the process, whatever connection it comes by. Connections with `writer_client_id` and
    `writer_principal`, where these are given, may write as it does.

    A member of a consumer group has an `assignment`: whether it lives is for the group's coordinator to say,
    so it has no session here.
    """

    owner_id: str
    client_id: str
    principal: str
    host: str
    session_timeout_ms: int
    access: Access = Access.NONE
    writer_client_id: str | None = None
    writer_principal: str | None = None
    assignment: ReaderAssignment | None = None

    def binds(self, client_id: str, principal: str) -> bool:
        """Whether a connection with these is bound to this owner."""
        if self.writer_client_id is None and self.writer_principal is None:
            return False
        return self.writer_client_id in (None, client_id) and self.writer_principal in (None, principal)


@dataclass(frozen=True, slots=True)
class Grant:
    """One ownership. `reason` is NONE for as long as it lasts, and `until_ms` -1.

    `named` is the generation that its claim named, by which the claim is known again when it is repeated.
    `fence_offset` is -1 for names, and while it is not known. Times are in ms since the epoch.
    """

    generation: int
    incarnation: int
    owner: Owner
    named: int
    since_ms: int
    fence_offset: int = NO_OFFSET
    until_ms: int = NEVER_MS
    reason: LossReason = LossReason.NONE

    @property
    def is_over(self) -> bool:
        return self.reason is not LossReason.NONE

    @property
    def may_resume(self) -> bool:
        """Whether it lasts, or was lost for no other reason than silence: its owner may go on with it."""
        return self.reason in (LossReason.NONE, LossReason.DISCONNECTED, LossReason.SESSION_TIMED_OUT)

    def ended(self, reason: LossReason, now_ms: int) -> Grant:
        return replace(self, reason=reason, until_ms=now_ms)


History: TypeAlias = tuple[Grant, ...]
"""The grants of one group, the newest last; at most `HISTORY_MAX`."""


@dataclass(frozen=True, slots=True)
class OwnershipRecord:
    """A resource as it is written: the newest incarnation, that of the newest grant to a writer, and the
    history of each group. The history forgets; the incarnations do not.

    `floor` is the highest generation of the groups that were forgotten: any that is not known goes on from
    there.
    """

    incarnation: int
    histories: Mapping[str, History]
    write_incarnation: int = 0
    floor: int = 0


def grant_bytes(grant: Grant, group: str = "") -> int:
    """What a grant takes where it is written, at most; with the name of its group, where that is given."""
    return owner_bytes(grant.owner) + _NUMBERS_BYTES + len(encode_basestring_ascii(group))


def record_bytes(record: OwnershipRecord) -> int:
    """What a record takes where it is written, at most."""
    return sum(grant_bytes(grant, group) for group, history in record.histories.items() for grant in history)


def owner_bytes(owner: Owner) -> int:
    """What the names of an owner take where they are written."""
    names = (owner.owner_id, owner.client_id, owner.principal, owner.host)
    optional = (owner.writer_client_id, owner.writer_principal)
    return sum(len(encode_basestring_ascii(text)) for text in (*names, *optional) if text is not None)


def trimmed(record: OwnershipRecord) -> OwnershipRecord:
    """The record without what it has no room for: the oldest grants, and the groups that have been free for
    longest. The last grant of a group is forgotten only with the group, and a group in which somebody has the
    resource never is."""
    histories = dict(record.histories)
    floor = record.floor
    free = _free(histories)
    excess_bytes = sum(_last_bytes(group, histories) for group in free) - FREE_BYTES_MAX
    excess = max(0, len(histories) - GROUPS_MAX)
    for group in free:
        if excess <= 0 and excess_bytes <= 0:
            break
        excess_bytes -= _last_bytes(group, histories)
        excess -= 1
        floor = max(floor, histories.pop(group)[-1].generation)
    past = sorted(
        (grant.incarnation, grant_bytes(grant), group)
        for group, history in histories.items()
        for grant in history[:-1]
    )
    excess_bytes = sum(size for _, size, _ in past) - HISTORY_BYTES_MAX
    for _, size, group in past:
        if excess_bytes <= 0:
            break
        excess_bytes -= size
        histories[group] = histories[group][1:]
    return replace(record, histories=histories, floor=floor)


def _free(histories: Mapping[str, History]) -> list[str]:
    """The groups in which nobody has the resource, the longest unused first."""
    free = [group for group, history in histories.items() if history[-1].is_over]
    return sorted(free, key=lambda group: histories[group][-1].incarnation)


def _last_bytes(group: str, histories: Mapping[str, History]) -> int:
    return grant_bytes(histories[group][-1], group)


def encode_ownership(record: OwnershipRecord) -> bytes:
    value: dict[str, Any] = {
        "version": _VERSION,
        "incarnation": record.incarnation,
        "groups": {
            group: [_grant_value(grant) for grant in history] for group, history in record.histories.items()
        },
    }
    if record.write_incarnation != _newest_write(record.histories):
        value["written"] = record.write_incarnation
    if record.floor:
        value["floor"] = record.floor
    return json.dumps(value, separators=(",", ":")).encode()


def _grant_value(grant: Grant) -> dict[str, Any]:
    owner = grant.owner
    value: dict[str, Any] = {
        "generation": grant.generation,
        "incarnation": grant.incarnation,
        "named": grant.named,
        "since": grant.since_ms,
        "owner": owner.owner_id,
        "client": owner.client_id,
        "principal": owner.principal,
        "host": owner.host,
        "session_timeout": owner.session_timeout_ms,
        "access": int(owner.access),
    }
    optional: dict[str, tuple[Any, Any]] = {
        "writer_client": (owner.writer_client_id, None),
        "writer_principal": (owner.writer_principal, None),
        "assigned": (_assignment_value(owner.assignment), None),
        "fence": (grant.fence_offset, NO_OFFSET),
        "until": (grant.until_ms, NEVER_MS),
        "reason": (int(grant.reason), int(LossReason.NONE)),
    }
    value.update({name: given for name, (given, default) in optional.items() if given != default})
    return value


def _assignment_value(assignment: ReaderAssignment | None) -> list[int] | None:
    return None if assignment is None else [assignment.epoch, assignment.offset, assignment.generation]


def decode_ownership(path: str, data: bytes) -> OwnershipRecord:
    """Raises `BadZnode`."""
    try:
        value = json.loads(data)
        histories = {
            str(group): tuple(_decode_grant(grant) for grant in grants)
            for group, grants in value["groups"].items()
        }
        written = int(value.get("written", _newest_write(histories)))
        return OwnershipRecord(int(value["incarnation"]), histories, written, int(value.get("floor", 0)))
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not say who owns a resource: {error!r}") from None


def _newest_write(histories: Mapping[str, History]) -> int:
    """What the histories say of it: where they have not forgotten it, it is not written beside them."""
    return max(
        (
            grant.incarnation
            for history in histories.values()
            for grant in history
            if Access.WRITE in grant.owner.access
        ),
        default=0,
    )


def _decode_grant(value: Mapping[str, Any]) -> Grant:
    owner = Owner(
        str(value["owner"]),
        str(value["client"]),
        str(value["principal"]),
        str(value["host"]),
        int(value["session_timeout"]),
        Access(int(value["access"])),
        value.get("writer_client"),
        value.get("writer_principal"),
        _decode_assignment(value.get("assigned")),
    )
    return Grant(
        int(value["generation"]),
        int(value["incarnation"]),
        owner,
        int(value["named"]),
        int(value["since"]),
        int(value.get("fence", NO_OFFSET)),
        int(value.get("until", NEVER_MS)),
        LossReason(int(value.get("reason", LossReason.NONE))),
    )


def _decode_assignment(value: Any) -> ReaderAssignment | None:
    if value is None:
        return None
    epoch, offset, generation = map(int, value)
    return ReaderAssignment(epoch, offset, generation)


def topic_id_of_znode(child: str) -> uuid.UUID | None:
    """The topic that a znode under `OWNED_TOPICS` is about; None for one that is named after no topic."""
    try:
        return decode_uuid(child)
    except ValueError:
        return None
