"""The records of `__consumer_offsets` and `__transaction_state` as JSON, for people who look into the files.

Kafka's tool prints its own kinds of records in this form: a key with its type, a value with its version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias

from holdfast_log.coordinator.groups import records as group_records
from holdfast_log.coordinator.groups.consumer_records import ConsumerKey, ReplayedGroup
from holdfast_log.coordinator.groups.records import GroupKey, ManagedGroupKey, OffsetKey
from holdfast_log.coordinator.shards.effects import MalformedRecord
from holdfast_log.coordinator.transactions.records import TransactionLogValue, decode_transaction_key
from holdfast_log.protocol import schema
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.protocol.wire import MalformedMessage, UnsupportedVersion

RecordDecoder: TypeAlias = Callable[[bytes, bytes | None], tuple[str, str | None]]
"""Takes a record's key and value. Raises MalformedRecord."""


def of_offsets(key: bytes, value: bytes | None) -> tuple[str, str | None]:
    """A record of `__consumer_offsets`: a committed offset, or the state of a group or of its member."""
    decoded = group_records.decode_key(key)
    if decoded is None:
        raise MalformedRecord(f"a key of the unknown type {_number(key)}")
    return _text("type", key, _of_key(decoded)), None if value is None else _of_group(decoded, value)


def of_transactions(key: bytes, value: bytes | None) -> tuple[str, str | None]:
    """A record of `__transaction_state`."""
    name = decode_transaction_key(key)
    if name is None:
        raise MalformedRecord(f"a key of the unknown type {_number(key)}")
    shown = _text("type", key, {"transactionalId": name})
    if value is None:
        return shown, None
    try:
        decoded = schema.decode(TransactionLogValue, _number(value), value[2:])
    except (MalformedMessage, UnsupportedVersion) as error:
        raise MalformedRecord(str(error)) from None
    return shown, _text("version", value, _plain(decoded))


def _of_key(key: group_records.Key) -> dict[str, object]:
    match key:
        case OffsetKey(group_id, partition):
            return {"group": group_id, "topic": partition.topic, "partition": partition.partition}
        case GroupKey(group_id) | ManagedGroupKey(group_id):
            return {"group": group_id}
        case ConsumerKey(_, group_id, ""):
            return {"groupId": group_id}
        case ConsumerKey(_, group_id, member_id):
            return {"groupId": group_id, "memberId": member_id}
    raise AssertionError(f"{key} is no key of a group")


def _of_group(key: group_records.Key, value: bytes) -> str:
    match key:
        case OffsetKey():
            return _text("version", value, _plain(group_records.decode_offset_value(value)))
        case GroupKey():
            return _text("version", value, _plain(group_records.decode_group_value(value)))
        case ManagedGroupKey():
            return _text("version", value, _plain(group_records.decode_managed_group_value(value)))
    replayed = ReplayedGroup()
    replayed.take(key, value)
    return _text("version", value, _of_consumer_group(replayed))


def _of_consumer_group(group: ReplayedGroup) -> object:
    """What the one record that a group was made of has said."""
    for of_member in (group.metas, group.targets, group.currents):
        for content in of_member.values():
            return _plain(content)
    if group.topics:
        return {"topics": _plain(group.topics)}
    return {"epoch": group.assignment_epoch if group.epoch is None else group.epoch}


def _text(kind: str, content: bytes, data: object) -> str:
    return json.dumps({kind: str(_number(content)), "data": data}, separators=(",", ":"))


def _number(content: bytes) -> int:
    return int.from_bytes(content[:2], signed=True)


def _plain(value: Any) -> Any:
    """A value as JSON has it: names of fields as Kafka writes them, bytes in hexadecimal digits."""
    match value:
        case TopicPartition():
            return str(value)
        case bytes():
            return value.hex()
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case Set():
            return sorted((_plain(each) for each in value), key=str)
        case tuple() if hasattr(value, "_asdict"):
            return {_camel(name): _plain(each) for name, each in value._asdict().items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    if is_dataclass(value):
        return {_camel(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    return value.name if isinstance(value, Enum) else str(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
