"""What is written of owned resources, and where: one znode for each resource, with all its groups.

A partition's znode is named after its topic's id, so it dies with the topic, and a topic that is made again
under the name begins with none. Generations are never taken out: they outlive their owners.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from coordinator.znodes import (
    OWNED_NAMES,
    OWNED_TOPICS,
    WRONG_SHAPE,
    BadZnode,
    decode_uuid,
    encode_uuid,
)
from protocol.messages.ownership import Access, LossReason

HISTORY_MAX = 16
"""Grants that are remembered for each group, the present one included."""
NO_OFFSET = -1
NEVER_MS = -1
_VERSION = 1


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


@dataclass(frozen=True, slots=True)
class Owner:
    """Who was granted a resource, and on what terms.

    `owner_id` names the process, whatever connection it comes by. Connections with `writer_client_id` and
    `writer_principal`, where these are given, may write as it does.
    """

    owner_id: str
    client_id: str
    principal: str
    host: str
    session_timeout_ms: int
    access: Access = Access.NONE
    writer_client_id: str | None = None
    writer_principal: str | None = None

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
    history of each group. The history forgets; the incarnations do not."""

    incarnation: int
    histories: Mapping[str, History]
    write_incarnation: int = 0


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
        "fence": (grant.fence_offset, NO_OFFSET),
        "until": (grant.until_ms, NEVER_MS),
        "reason": (int(grant.reason), int(LossReason.NONE)),
    }
    value.update({name: given for name, (given, default) in optional.items() if given != default})
    return value


def decode_ownership(path: str, data: bytes) -> OwnershipRecord:
    """Raises `BadZnode`."""
    try:
        value = json.loads(data)
        histories = {
            str(group): tuple(_decode_grant(grant) for grant in grants)
            for group, grants in value["groups"].items()
        }
        written = int(value.get("written", _newest_write(histories)))
        return OwnershipRecord(int(value["incarnation"]), histories, written)
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


def topic_id_of_znode(child: str) -> uuid.UUID | None:
    """The topic that a znode under `OWNED_TOPICS` is about; None for one that is named after no topic."""
    try:
        return decode_uuid(child)
    except ValueError:
        return None
