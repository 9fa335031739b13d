"""Ownership records and their znodes: one znode for each resource, with all its groups.

A partition's znode is named after its topic's id: it is deleted with the topic, and a topic created again
under the same name begins without one. Otherwise generations outlive their owners.

A name that nobody has owned for long may be forgotten: its znode is deleted. The parent of all names keeps
the *mark* `incarnations_from`, which is at least the incarnation of every forgotten name.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring_ascii
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_uuid, encode_uuid
from holdfast_log.coordinator.znodes.layout import OWNED_NAMES, OWNED_TOPICS
from holdfast_log.protocol.messages.ownership import Access, LossReason

HISTORY_MAX = 16
"""Grants remembered for each group, including the present one."""
HISTORY_BYTES_MAX = 8192
"""Bytes for the past grants of one resource in all its groups; beyond that the oldest are forgotten."""
GROUPS_MAX = 100
"""Groups remembered for a resource, including groups in which it has no owner."""
FREE_BYTES_MAX = 65_536
"""Bytes for the latest grants of groups in which a resource has no owner."""
OWNER_BYTES_MAX = 3072
"""Bytes for all names of an owner together. A character beyond ASCII takes six bytes."""
NO_OFFSET = -1
NEVER_MS = -1
_VERSION = 1
_OLDER_REASONS = {
    LossReason.FOREIGN_APPEND: LossReason.STOLEN,
    LossReason.FOREIGN_FETCH: LossReason.STOLEN,
}
"""Reasons that brokers before this version cannot decode, and what is written for them: it ends the grant for
good there too. The reason itself is written beside it."""
_DIGEST_BYTES = 56
"""Bytes that the digest of a secret takes in a written grant."""
_NUMBERS_BYTES = 430
"""Maximum bytes of a grant without its names."""
GRANT_BYTES_MAX = OWNER_BYTES_MAX + _NUMBERS_BYTES + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition of the topic with this id. A topic created again has another id. `topic` is for display
    only."""

    topic_id: uuid.UUID
    index: int
    topic: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def path(self) -> str:
        return f"{owned_topic_path(self.topic_id)}/{self.index}"

    @property
    def first(self) -> PartitionKey:
        """Partition 0 of the same topic."""
        return PartitionKey(self.topic_id, 0, self.topic)


@dataclass(frozen=True, slots=True)
class NameKey:
    """A name chosen by an application, within its group."""

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
    """The group, or the name, of a znode under `OWNED_NAMES`."""
    return unquote(child)


def _quoted(text: str) -> str:
    # ZooKeeper allows neither "/" nor the names "." and "..".
    return quote(text, safe="").replace(".", "%2E")


@dataclass(frozen=True, slots=True, order=True)
class ReaderAssignment:
    """A decision of a consumer group's coordinator about a partition. Later decisions compare greater.

    `epoch` and `offset` order the decisions, see `coordinator.groups.effects.Decision`. `generation` is that
    of the group.
    """

    epoch: int
    offset: int
    generation: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who was granted a resource.

    `owner_id` names the process across its connections. If `writer_client_id` or `writer_principal` is given,
    connections that match may write as the owner does. Without `writer_principal` the client id counts only
    on connections of the owner's own principal: any client may call itself what it likes.

    A member of a consumer group has an `assignment`, and no session: the group's coordinator decides whether
    it is alive.

    `secret_digest` is the digest of the secret by which the owner proves that a request is its own:
    `NO_SECRET` if it sent none; None in the records of brokers that knew no secrets, and for members.

    `covers_topic`: it is an exclusive producer of the whole topic, and while it owns partition 0, partitions
    that are added to the topic are kept for it.
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
    secret_digest: bytes | None = field(default=None, repr=False)
    covers_topic: bool = False

    def binds(self, client_id: str, principal: str) -> bool:
        """Whether a connection with this client id and principal may write as this owner does."""
        if self.writer_client_id is None and self.writer_principal is None:
            return False
        bound = self.principal if self.writer_principal is None else self.writer_principal
        return self.writer_client_id in (None, client_id) and principal == bound


@dataclass(frozen=True, slots=True)
class Grant:
    """One ownership. `reason` is NONE and `until_ms` is -1 while it is in force.

    An *interlude* is a grant to nobody, which has ended from the beginning: strangers have written to, or
    read, a partition whose owner was gone. Its owner is a description of the stranger who came first.

    `claimed_generation` is the generation that its claim named: it identifies the claim when it is repeated.
    `fence_offset` is -1 for names, and until it is known. Times are in ms since the epoch.
    """

    generation: int
    incarnation: int
    owner: Owner
    claimed_generation: int
    since_ms: int
    fence_offset: int = NO_OFFSET
    until_ms: int = NEVER_MS
    reason: LossReason = LossReason.NONE

    @property
    def has_ended(self) -> bool:
        """Whether the grant is no longer in force."""
        return self.reason is not LossReason.NONE

    @property
    def may_resume(self) -> bool:
        """Whether the grant is in force, or was lost to silence only: its owner may resume it."""
        return self.reason in (LossReason.NONE, LossReason.DISCONNECTED, LossReason.SESSION_TIMED_OUT)

    def ended(self, reason: LossReason, now_ms: int) -> Grant:
        """The grant after it has ended at `now_ms`."""
        return replace(self, reason=reason, until_ms=now_ms)


History: TypeAlias = tuple[Grant, ...]
"""The grants of one group, oldest first; at most `HISTORY_MAX`."""


@dataclass(frozen=True, slots=True)
class OwnershipRecord:
    """A resource as it is written to ZooKeeper.

    `incarnation` is that of the latest grant, and `write_incarnation` that of the latest grant to a writer:
    they are kept even where the histories have forgotten the grant. `floor` is the highest generation among
    the forgotten groups: a group without a history continues from it.
    """

    incarnation: int
    histories: Mapping[str, History]
    write_incarnation: int = 0
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What takes the place of a name's record when the name is forgotten: no znode.

    `incarnation` is the name's last one. The name's grants after this one have higher incarnations.
    """

    incarnation: int


def topic_owner(record: OwnershipRecord) -> Owner | None:
    """The exclusive producer that owns a whole topic, by the record of the topic's partition 0; None if no
    producer does."""
    for history in record.histories.values():
        if not history[-1].has_ended and history[-1].owner.covers_topic:
            return history[-1].owner
    return None


def grant_bytes(grant: Grant, group: str = "") -> int:
    """Maximum bytes of a written grant, and of the name of its group if given."""
    digest_bytes = _DIGEST_BYTES if grant.owner.secret_digest is not None else 0
    return owner_bytes(grant.owner) + _NUMBERS_BYTES + digest_bytes + len(encode_basestring_ascii(group))


def record_bytes(record: OwnershipRecord) -> int:
    """Maximum bytes of a written record."""
    return sum(grant_bytes(grant, group) for group, history in record.histories.items() for grant in history)


def owner_bytes(owner: Owner) -> int:
    """Bytes of an owner's names where they are written."""
    names = (owner.owner_id, owner.client_id, owner.principal, owner.host)
    optional = (owner.writer_client_id, owner.writer_principal)
    return sum(len(encode_basestring_ascii(text)) for text in (*names, *optional) if text is not None)


def trimmed(record: OwnershipRecord, history_bytes_max: int = HISTORY_BYTES_MAX) -> OwnershipRecord:
    """The record cut to the limits above: without its oldest grants, and without the groups unused for
    longest.

    The latest grant of a group is forgotten only together with the group. A group with an owner is never
    forgotten.
    """
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
    excess_bytes = sum(size for _, size, _ in past) - history_bytes_max
    for _, size, group in past:
        if excess_bytes <= 0:
            break
        excess_bytes -= size
        histories[group] = histories[group][1:]
    return replace(record, histories=histories, floor=floor)


def _free(histories: Mapping[str, History]) -> list[str]:
    """The groups in which the resource has no owner, the longest unused first."""
    free = [group for group, history in histories.items() if history[-1].has_ended]
    return sorted(free, key=lambda group: histories[group][-1].incarnation)


def _last_bytes(group: str, histories: Mapping[str, History]) -> int:
    return grant_bytes(histories[group][-1], group)


def encode_mark(incarnations_from: int) -> bytes:
    """The data of `OWNED_NAMES`: the mark above which the incarnations of forgotten names begin."""
    return json.dumps({"version": _VERSION, "incarnations_from": incarnations_from}).encode()


def decode_mark(data: bytes) -> int:
    """The mark in `OWNED_NAMES`; 0 if it was never written. Raises `BadZnode` if the data is no mark."""
    if not data:
        return 0
    try:
        return int(json.loads(data)["incarnations_from"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{OWNED_NAMES} holds no mark for incarnations: {error!r}") from None


def encode_ownership(record: OwnershipRecord) -> bytes:
    """The data of a resource's znode, as JSON."""
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
        "named": grant.claimed_generation,
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
        "secret": (_digest_value(owner.secret_digest), None),
        "covers_topic": (owner.covers_topic, False),
        "fence": (grant.fence_offset, NO_OFFSET),
        "until": (grant.until_ms, NEVER_MS),
        "reason": (int(_OLDER_REASONS.get(grant.reason, grant.reason)), int(LossReason.NONE)),
        "foreign": (int(grant.reason) if grant.reason in _OLDER_REASONS else None, None),
    }
    value.update({name: given for name, (given, default) in optional.items() if given != default})
    return value


def _assignment_value(assignment: ReaderAssignment | None) -> list[int] | None:
    return None if assignment is None else [assignment.epoch, assignment.offset, assignment.generation]


def _digest_value(digest: bytes | None) -> str | None:
    return None if digest is None else base64.b64encode(digest).decode()


def decode_ownership(path: str, data: bytes) -> OwnershipRecord:
    """The record in a resource's znode. Raises `BadZnode` if the data is not an ownership record."""
    try:
        value = json.loads(data)
        histories = {
            str(group): tuple(_decode_grant(grant) for grant in grants)
            for group, grants in value["groups"].items()
        }
        written = int(value.get("written", _newest_write(histories)))
        return OwnershipRecord(int(value["incarnation"]), histories, written, int(value.get("floor", 0)))
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} holds no ownership record: {error!r}") from None


def _newest_write(histories: Mapping[str, History]) -> int:
    """The write incarnation as the histories have it; it is written separately only if they have forgotten
    it."""
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
        _decode_digest(value.get("secret")),
        bool(value.get("covers_topic", False)),
    )
    return Grant(
        int(value["generation"]),
        int(value["incarnation"]),
        owner,
        int(value["named"]),
        int(value["since"]),
        int(value.get("fence", NO_OFFSET)),
        int(value.get("until", NEVER_MS)),
        LossReason(int(value.get("foreign", value.get("reason", LossReason.NONE)))),
    )


def _decode_digest(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value, validate=True)


def _decode_assignment(value: Any) -> ReaderAssignment | None:
    if value is None:
        return None
    epoch, offset, generation = map(int, value)
    return ReaderAssignment(epoch, offset, generation)


def topic_id_of_znode(child: str) -> uuid.UUID | None:
    """The topic of a znode under `OWNED_TOPICS`; None if its name is not a topic id."""
    try:
        return decode_uuid(child)
    except ValueError:
        return None
