"""The records of `__consumer_offsets`: Kafka's own key and value formats, byte for byte.

A key starts with its version, which gives the kind of record: 0 and 1 a committed offset, 2 the state of a
classic group, 3 to 8 that of a consumer group (consumer_records.py). `MANAGED_GROUP_KEY_VERSION` marks the
state of a group under the client rewrite's protocol; it lies far above all of Kafka's versions, and Kafka's
own loader, its console formatters and the usual lag monitors skip versions that they do not know.

Records are written in the newest versions that brokers and tools of Kafka's ZooKeeper mode read: offset keys
v1 and values v3 (v1 for a commit with its own expiry, which later versions cannot hold), group keys v2 and
values v3. All older value versions are read.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast_log.coordinator.groups.consumer_records import KINDS, ConsumerKey, decode_consumer_key
from holdfast_log.coordinator.shards.effects import MalformedRecord, ShardRecord
from holdfast_log.protocol.topic_partition import TopicPartition

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
MANAGED_GROUP_KEY_VERSION = 30_000

_MAX_TEXT = 2**15 - 1
_SHORT = struct.Struct(">h")
_TWO_SHORTS = struct.Struct(">hh")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_OFFSET_V3_HEAD = struct.Struct(">hqi")
_OFFSET_V1_HEAD = struct.Struct(">hq")
_TWO_LONGS = struct.Struct(">qq")
_OFFSET_KEY_STARTS = tuple(_SHORT.pack(version) for version in OFFSET_KEY_VERSIONS)
_OFFSET_VALUE_V3_START = _SHORT.pack(3)
_TEXT_START = 4
"""Where the bytes of a key's first string begin: after the version and the length."""


class CommittedOffset(NamedTuple):
    """A group's position in one partition. The timestamps are ms since the epoch."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member in the record of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """The value of a classic group's record: everything that a new coordinator restores."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: int | None
    members: tuple[MemberValue, ...]

    @property
    def is_interrupted(self) -> bool:
        """Whether the group has to rebalance before anything else: it was a consumer group, and has members
        but no leader yet."""
        return self.leader_id is None and bool(self.members)


@dataclass(frozen=True, slots=True)
class ManagedMemberValue:
    """A member in the record of a managed group; `generation` is that of its last assignment, `owned`."""

    consumer_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    generation: int
    owned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ManagedGroupValue:
    """The durable part of a group under the client rewrite's protocol.

    `partitions` has the group's topics, each with the number of its partitions that the group has seen.
    Version 1 adds `single_reader`; a group without single readers is written in version 0.
    """

    session_timeout_ms: int
    ephemeral: bool
    assignment_strategy: str
    generation: int
    partitions: tuple[tuple[str, int], ...]
    members: tuple[ManagedMemberValue, ...]
    single_reader: bool = False


class OffsetKey(NamedTuple):
    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


class ManagedGroupKey(NamedTuple):
    group_id: str


Key: TypeAlias = OffsetKey | GroupKey | ManagedGroupKey | ConsumerKey


def offset_record(group_id: str, partition: TopicPartition, committed: CommittedOffset | None) -> ShardRecord:
    """The record that commits an offset, or with None deletes it."""
    key = b"".join(
        (_SHORT.pack(1), _string(group_id), _string(partition.topic), _INT.pack(partition.partition))
    )
    return ShardRecord(key, None if committed is None else _offset_value(committed))


def group_record(group_id: str, value: GroupValue | None) -> ShardRecord:
    """The record that holds a classic group's state, or with None deletes it."""
    key = _SHORT.pack(GROUP_KEY_VERSION) + _string(group_id)
    return ShardRecord(key, None if value is None else _group_value(value))


def managed_group_record(group_id: str, value: ManagedGroupValue | None) -> ShardRecord:
    """The record that holds a managed group's state, or with None deletes it."""
    key = _SHORT.pack(MANAGED_GROUP_KEY_VERSION) + _string(group_id)
    return ShardRecord(key, None if value is None else _managed_group_value(value))


def decode_key(key: bytes) -> Key | None:
    """Decode a key; None for an unknown version. Raises `MalformedRecord`."""
    if key[:2] in _OFFSET_KEY_STARTS:
        return _decode_offset_key(key)
    reader = _Reader(key)
    version = reader.int16()
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.text())
    if version == MANAGED_GROUP_KEY_VERSION:
        return ManagedGroupKey(reader.text())
    return decode_consumer_key(key) if version in KINDS else None


def decode_offset_value(value: bytes) -> CommittedOffset:
    """Decode the value of an offset record, v0-v3. Raises `MalformedRecord`."""
    if value[:2] == _OFFSET_VALUE_V3_START:
        return _decode_offset_value_v3(value)
    reader = _Reader(value)
    version = reader.int16()
    if version not in (0, 1, 2, 3):
        raise MalformedRecord(f"offset value of unknown version {version}")
    offset = reader.int64()
    metadata = reader.text()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else -1
    return CommittedOffset(
        offset,
        -1,
        metadata,
        commit_timestamp_ms,
        None if expire_timestamp_ms < 0 else expire_timestamp_ms,
    )


def decode_group_value(value: bytes) -> GroupValue:
    """Decode the value of a classic group's record, v0-v3. Raises `MalformedRecord`."""
    reader = _Reader(value)
    version = reader.int16()
    if version not in (0, 1, 2, 3):
        raise MalformedRecord(f"group value of unknown version {version}")
    protocol_type = reader.text()
    generation = reader.int32()
    protocol_name = reader.nullable_text()
    leader_id = reader.nullable_text()
    state_since_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.int32()))
    return GroupValue(
        protocol_type,
        generation,
        protocol_name,
        leader_id,
        None if state_since_ms < 0 else state_since_ms,
        members,
    )


def decode_managed_group_value(value: bytes) -> ManagedGroupValue:
    """Decode the value of a managed group's record. Raises `MalformedRecord`."""
    reader = _Reader(value)
    version = reader.int16()
    if version not in (0, 1):
        raise MalformedRecord(f"managed group value of unknown version {version}")
    return ManagedGroupValue(
        single_reader=version >= 1 and reader.int16() != 0,
        session_timeout_ms=reader.int32(),
        ephemeral=reader.int16() != 0,
        assignment_strategy=reader.text(),
        generation=reader.int32(),
        partitions=tuple((reader.text(), reader.int32()) for _ in range(reader.int32())),
        members=tuple(_read_managed_member(reader) for _ in range(reader.int32())),
    )


def _decode_offset_key(key: bytes) -> OffsetKey:
    """Decode an offset's key, v0-v1, without a cursor: a coordinator may have to read a million.

    Topic names are interned, because the same few recur.
    """
    try:
        group_end = _TEXT_START + _SHORT.unpack_from(key, 2)[0]
        topic_end = group_end + 2 + _SHORT.unpack_from(key, group_end)[0]
        (partition,) = _INT.unpack_from(key, topic_end)
        group_id = key[_TEXT_START:group_end].decode()
        topic = sys.intern(key[group_end + 2 : topic_end].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"malformed key of an offset: {error}") from None
    if not _TEXT_START <= group_end <= topic_end - 2:
        raise MalformedRecord("the length of a string in an offset's key is negative")
    return OffsetKey(group_id, TopicPartition(topic, partition))


def _decode_offset_value_v3(value: bytes) -> CommittedOffset:
    """Decode an offset's value, v3, without a cursor: a coordinator may have to read a million."""
    start = _OFFSET_V3_HEAD.size + 2
    try:
        _, offset, leader_epoch = _OFFSET_V3_HEAD.unpack_from(value)
        end = start + _SHORT.unpack_from(value, start - 2)[0]
        (commit_timestamp_ms,) = _LONG.unpack_from(value, end)
        metadata = value[start:end].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"malformed value of an offset: {error}") from None
    if end < start:
        raise MalformedRecord("null where a string belongs")
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms)


def _read_member(reader: _Reader, version: int) -> MemberValue:
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id = reader.text()
    client_host = reader.text()
    # v0 has no rebalance timeout; the session timeout served as both
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription=reader.blob(),
        assignment=reader.blob(),
    )


def _read_managed_member(reader: _Reader) -> ManagedMemberValue:
    return ManagedMemberValue(
        consumer_id=reader.text(),
        client_id=reader.text(),
        client_host=reader.text(),
        session_timeout_ms=reader.int32(),
        generation=reader.int32(),
        owned=tuple(TopicPartition(reader.text(), reader.int32()) for _ in range(reader.int32())),
    )


def _offset_value(committed: CommittedOffset) -> bytes:
    metadata = _string(committed.metadata)
    if committed.expire_timestamp_ms is not None:
        times = _TWO_LONGS.pack(committed.commit_timestamp_ms, committed.expire_timestamp_ms)
        return _OFFSET_V1_HEAD.pack(1, committed.offset) + metadata + times
    head = _OFFSET_V3_HEAD.pack(3, committed.offset, committed.leader_epoch)
    return head + metadata + _LONG.pack(committed.commit_timestamp_ms)


def _group_value(value: GroupValue) -> bytes:
    parts = [
        _SHORT.pack(3),
        _string(value.protocol_type),
        _INT.pack(value.generation),
        _nullable_string(value.protocol_name),
        _nullable_string(value.leader_id),
        _LONG.pack(-1 if value.state_since_ms is None else value.state_since_ms),
        _INT.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _managed_group_value(value: ManagedGroupValue) -> bytes:
    parts = [
        _TWO_SHORTS.pack(1, value.single_reader) if value.single_reader else _SHORT.pack(0),
        _INT.pack(value.session_timeout_ms),
        _SHORT.pack(value.ephemeral),
        _string(value.assignment_strategy),
        _INT.pack(value.generation),
        _INT.pack(len(value.partitions)),
    ]
    for topic, count in value.partitions:
        parts += (_string(topic), _INT.pack(count))
    parts.append(_INT.pack(len(value.members)))
    for member in value.members:
        parts += (
            _string(member.consumer_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT.pack(member.session_timeout_ms),
            _INT.pack(member.generation),
            _INT.pack(len(member.owned)),
        )
        for owned in member.owned:
            parts += (_string(owned.topic), _INT.pack(owned.partition))
    return b"".join(parts)


def fits(*texts: str | None) -> bool:
    """Whether each of `texts` fits a string of these formats, whose length field is a signed 16-bit
    integer."""
    return all(
        text is None or len(text) * 4 <= _MAX_TEXT or len(text.encode()) <= _MAX_TEXT for text in texts
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return _SHORT.pack(-1) if text is None else _string(text)


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


class _Reader:
    """A cursor over one key or value. Every read raises `MalformedRecord` if the bytes do not match."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return self._unpack(_SHORT)

    def int32(self) -> int:
        return self._unpack(_INT)

    def int64(self) -> int:
        return self._unpack(_LONG)

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise MalformedRecord("null where a string belongs")
        return text

    def nullable_text(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRecord(str(error)) from None

    def blob(self) -> bytes:
        return bytes(self._take(self.int32()))

    def _unpack(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._position)
        except struct.error:
            raise MalformedRecord(f"truncated at byte {self._position}") from None
        self._position += layout.size
        return value  # type: ignore[no-any-return]

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedRecord(
                f"length {length} at byte {self._position} exceeds the {len(self._data)} bytes"
            )
        data = self._data[self._position : end]
        self._position = end
        return data
