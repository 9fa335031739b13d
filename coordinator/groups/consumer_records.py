"""The records of consumer groups (KIP-848) in `__consumer_offsets`: Kafka's keys 3 to 8, byte for byte.

The state of a group is spread over several records, so that a change of one member is not as long as the
group: 3 the group's epoch, 4 its topics, 5 a member and its subscription, 6 the epoch of the target
assignment, 7 a member's target, 8 what a member has. Kafka 3.9 writes these versions, and later ones read
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from holdfast_log.coordinator.groups.consumer_assignment import (
    CurrentAssignment,
    IdPartition,
    MemberState,
    Partitions,
)
from holdfast_log.coordinator.shards.effects import MalformedRecord, ShardRecord
from holdfast_log.protocol.schema import (
    Int8,
    Int16,
    Int32,
    MalformedMessage,
    ProtocolMessage,
    decode,
    encode,
    message,
    struct,
    wire,
)

M = TypeVar("M", bound=ProtocolMessage)

_STATE_NUMBERS = {MemberState.STABLE: 0, MemberState.UNREVOKED: 1, MemberState.UNRELEASED: 2}
_STATES = {number: state for state, number in _STATE_NUMBERS.items()}
LEFT_FOR_NOW = -2
"""The epoch of a static member that will come back."""


class TopicOfGroup(NamedTuple):
    """A topic that members read, as it was when partitions were last assigned."""

    topic_id: UUID
    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What only a member of the classic protocol has said in its JoinGroup: its session timeout, and its
    protocols with their metadata, the favourite first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMeta:
    """What a member has said of itself. `regex` is empty if it subscribes by names only, `assignor` if it
    leaves the choice to the others. `classic` is None unless it uses the classic protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str
    rebalance_timeout_ms: int
    assignor: str
    classic: ClassicMetadata | None = None


class ConsumerMemberValue(NamedTuple):
    """What the log has of a member."""

    meta: ConsumerMeta
    target: Partitions
    current: CurrentAssignment


@dataclass(frozen=True, slots=True)
class ConsumerGroupValue:
    """What the log has of a group. Read only."""

    epoch: int
    assignment_epoch: int
    topics: tuple[TopicOfGroup, ...]
    members: Mapping[str, ConsumerMemberValue]


class ConsumerKey(NamedTuple):
    """The key of one of a group's records; `member_id` is empty for those of the group."""

    kind: int
    group_id: str
    member_id: str = ""


GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT = range(3, 9)
KINDS = (GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT)
_OF_MEMBERS = (MEMBER, TARGET, CURRENT)


@message(versions="0")
class _KeyOfGroup(ProtocolMessage):
    kind: Int16
    group_id: str


@message(versions="0")
class _KeyOfMember(ProtocolMessage):
    kind: Int16
    group_id: str
    member_id: str


@message(versions="0")
class _Version(ProtocolMessage):
    version: Int16


@message(versions="0", flexible="0+")
class _Epoch(ProtocolMessage):
    """The values of keys 3 and 6."""

    epoch: Int32


@struct
class _Racks:
    partition: Int32
    racks: list[str]


@struct
class _Topic:
    topic_id: UUID
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[_Racks]


@message(versions="0", flexible="0+")
class _Topics(ProtocolMessage):
    topics: list[_Topic]


@struct
class _ClassicProtocol:
    name: str
    metadata: bytes


@struct
class _ClassicMember:
    session_timeout_ms: Int32
    supported_protocols: list[_ClassicProtocol]


@message(versions="0", flexible="0+")
class _Member(ProtocolMessage):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None
    classic_member_metadata: _ClassicMember | None = wire("0+", default=None, tag=0)


@struct
class _Assigned:
    topic_id: UUID
    partitions: list[Int32]


@message(versions="0", flexible="0+")
class _Target(ProtocolMessage):
    topic_partitions: list[_Assigned]


@message(versions="0", flexible="0+")
class _Current(ProtocolMessage):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[_Assigned]
    partitions_pending_revocation: list[_Assigned]


# Writing


def changes(
    group_id: str, before: ConsumerGroupValue | None, after: ConsumerGroupValue | None
) -> Iterator[ShardRecord]:
    """The records that turn what the log has of a group into `after`; None: nothing."""
    members_before = before.members if before is not None else {}
    members_after = after.members if after is not None else {}
    for member_id in members_before:
        if member_id not in members_after:
            for kind in reversed(_OF_MEMBERS):
                yield ShardRecord(_key(kind, group_id, member_id), None)
    if after is None:
        if before is not None:
            for kind in (TARGET_EPOCH, TOPICS, GROUP):
                yield ShardRecord(_key(kind, group_id), None)
        return
    for member_id, member in members_after.items():
        known = members_before.get(member_id)
        if known is None or known.meta != member.meta:
            yield ShardRecord(_key(MEMBER, group_id, member_id), _member_value(member.meta))
    if before is None or before.topics != after.topics:
        yield ShardRecord(_key(TOPICS, group_id), _topics_value(after.topics))
    if before is None or before.epoch != after.epoch:
        yield ShardRecord(_key(GROUP, group_id), _value(_Epoch(epoch=after.epoch)))
    for member_id, member in members_after.items():
        known = members_before.get(member_id)
        if known is None or known.target != member.target:
            value = _value(_Target(topic_partitions=_rows(member.target)))
            yield ShardRecord(_key(TARGET, group_id, member_id), value)
    if before is None or before.assignment_epoch != after.assignment_epoch:
        yield ShardRecord(_key(TARGET_EPOCH, group_id), _value(_Epoch(epoch=after.assignment_epoch)))
    for member_id, member in members_after.items():
        known = members_before.get(member_id)
        if known is None or known.current != member.current:
            yield ShardRecord(_key(CURRENT, group_id, member_id), _current_value(member.current))


def _key(kind: int, group_id: str, member_id: str = "") -> bytes:
    if kind in _OF_MEMBERS:
        return encode(_KeyOfMember(kind=kind, group_id=group_id, member_id=member_id), 0)
    return encode(_KeyOfGroup(kind=kind, group_id=group_id), 0)


def _value(value: ProtocolMessage) -> bytes:
    return encode(_Version(version=0), 0) + encode(value, 0)


def _topics_value(topics: tuple[TopicOfGroup, ...]) -> bytes:
    rows = [
        _Topic(topic_id=topic_id, topic_name=name, num_partitions=count, partition_metadata=[])
        for topic_id, name, count in topics
    ]
    return _value(_Topics(topics=rows))


def _member_value(meta: ConsumerMeta) -> bytes:
    classic = None
    if meta.classic is not None:
        protocols = [_ClassicProtocol(name=name, metadata=data) for name, data in meta.classic.protocols]
        classic = _ClassicMember(
            session_timeout_ms=meta.classic.session_timeout_ms, supported_protocols=protocols
        )
    return _value(
        _Member(
            instance_id=meta.instance_id,
            rack_id=meta.rack_id,
            client_id=meta.client_id,
            client_host=meta.client_host,
            subscribed_topic_names=list(meta.topics),
            subscribed_topic_regex=meta.regex,
            rebalance_timeout_ms=meta.rebalance_timeout_ms,
            server_assignor=meta.assignor or None,
            classic_member_metadata=classic,
        )
    )


def _current_value(current: CurrentAssignment) -> bytes:
    is_away = current.state is MemberState.AWAY
    return _value(
        _Current(
            member_epoch=LEFT_FOR_NOW if is_away else current.epoch,
            previous_member_epoch=current.epoch if is_away else current.previous_epoch,
            state=_STATE_NUMBERS.get(current.state, 0),
            assigned_partitions=_rows(current.assigned),
            partitions_pending_revocation=_rows(current.revoking),
        )
    )


def _rows(partitions: Partitions) -> list[_Assigned]:
    found: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return [_Assigned(topic_id=topic_id, partitions=numbers) for topic_id, numbers in found.items()]


# Reading


def decode_consumer_key(key: bytes) -> ConsumerKey:
    """Decode a key of one of `KINDS`. Raises `MalformedRecord`."""
    kind = int.from_bytes(key[:2], "big")
    if kind in _OF_MEMBERS:
        of_member = _decoded(_KeyOfMember, key)
        return ConsumerKey(kind, of_member.group_id, of_member.member_id)
    return ConsumerKey(kind, _decoded(_KeyOfGroup, key).group_id)


@dataclass(slots=True)
class ReplayedGroup:
    """The records of one group, read so far. Compaction may have kept them in any order."""

    epoch: int | None = None
    assignment_epoch: int = 0
    topics: tuple[TopicOfGroup, ...] = ()
    metas: dict[str, ConsumerMeta] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    currents: dict[str, CurrentAssignment] = field(default_factory=dict)

    def take(self, key: ConsumerKey, value: bytes | None) -> None:
        """Take one record; None deletes. Raises `MalformedRecord`, without a change."""
        match key.kind:
            case 3:
                self.epoch = None if value is None else _decoded_value(_Epoch, value).epoch
            case 4:
                self.topics = () if value is None else _topics(_decoded_value(_Topics, value))
            case 5:
                _set(self.metas, key, None if value is None else _meta(_decoded_value(_Member, value)))
            case 6:
                self.assignment_epoch = 0 if value is None else _decoded_value(_Epoch, value).epoch
            case 7:
                rows = None if value is None else _decoded_value(_Target, value).topic_partitions
                _set(self.targets, key, None if rows is None else _partitions(rows))
            case 8:
                current = None if value is None else _current(_decoded_value(_Current, value))
                _set(self.currents, key, current)

    def value(self) -> ConsumerGroupValue | None:
        """The group; None if the log has none."""
        if self.epoch is None:
            return None
        members = {
            member_id: ConsumerMemberValue(
                meta,
                self.targets.get(member_id, frozenset()),
                self.currents.get(member_id, CurrentAssignment()),
            )
            for member_id, meta in self.metas.items()
        }
        return ConsumerGroupValue(self.epoch, self.assignment_epoch, self.topics, members)


def _set(found: dict[str, Any], key: ConsumerKey, value: Any) -> None:
    if value is None:
        found.pop(key.member_id, None)
    else:
        found[key.member_id] = value


def _topics(value: _Topics) -> tuple[TopicOfGroup, ...]:
    return tuple(TopicOfGroup(row.topic_id, row.topic_name, row.num_partitions) for row in value.topics)


def _meta(value: _Member) -> ConsumerMeta:
    classic = None
    if value.classic_member_metadata is not None:
        rows = value.classic_member_metadata.supported_protocols
        classic = ClassicMetadata(
            value.classic_member_metadata.session_timeout_ms, tuple((row.name, row.metadata) for row in rows)
        )
    return ConsumerMeta(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor or "",
        classic,
    )


def _current(value: _Current) -> CurrentAssignment:
    if value.state not in _STATES:
        raise MalformedRecord(f"a member's assignment has the unknown state {value.state}")
    is_away = value.member_epoch == LEFT_FOR_NOW
    return CurrentAssignment(
        value.previous_member_epoch if is_away else value.member_epoch,
        value.previous_member_epoch,
        MemberState.AWAY if is_away else _STATES[value.state],
        _partitions(value.assigned_partitions),
        _partitions(value.partitions_pending_revocation),
    )


def _partitions(rows: list[_Assigned]) -> Partitions:
    return frozenset(IdPartition(row.topic_id, number) for row in rows for number in row.partitions)


def _decoded_value(cls: type[M], value: bytes) -> M:
    version = _decoded(_Version, value).version
    if version != 0:
        raise MalformedRecord(f"{cls.__name__.strip('_')} of a consumer group, of unknown version {version}")
    return _decoded(cls, value[2:])


def _decoded(cls: type[M], data: bytes) -> M:
    try:
        return decode(cls, 0, data)
    except MalformedMessage as error:
        raise MalformedRecord(str(error)) from None
