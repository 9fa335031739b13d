"""Requests that a client made up from the catalog of APIs, with values that would do harm if a broker
obeyed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from holdfast_log.protocol.api import Request
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.fields import (
    BOOLEAN,
    UUID128,
    Array,
    Field,
    Fixed,
    Struct,
    Variable,
    WireType,
    fields_of,
)

HARMFUL: Mapping[str, Any] = {
    "broker_epoch": -1,  # fits every broker
    "controller_epoch": 1 << 30,
    "leader_epoch": 1 << 30,
    "host": "127.0.0.1",
    "port": 9,
    "partition": 0,
    "partition_index": 0,
    "partitions": [0],
    "type": 0,
    "security_protocol": 0,
    "new_isr": [66],
    "isr": [66],
    "leader": 66,
    "nonce": bytes(32),
    "proof": b"",
}
"""Values of fields by name: a term that is later than all others, and a leader that does not exist."""


def internal_requests() -> list[tuple[type[Request[Any]], int]]:
    """Every version of every API between brokers."""
    return [(api.request, version) for api in APIS.values() if api.internal for version in api.versions]


def harmful(request: type[Request[Any]], version: int, topic: str, topic_id: uuid.UUID) -> Request[Any]:
    """A request whose every list has one element, and whose every text is the name of the topic."""
    built = _struct(request, version, topic, topic_id)
    assert isinstance(built, Request)
    return built


def _struct(cls: type, version: int, topic: str, topic_id: uuid.UUID) -> Any:
    fields = [field for field in fields_of(cls) if version in field.versions]
    return cls(**{field.name: _value(field, version, topic, topic_id) for field in fields})


def _value(field: Field, version: int, topic: str, topic_id: uuid.UUID) -> Any:
    value = HARMFUL.get(field.name)
    is_list = isinstance(field.type, Array)
    is_of_structs = isinstance(field.type, Struct) or isinstance(_element(field.type), Struct)
    if value is not None and is_list == isinstance(value, list) and not is_of_structs:
        return value
    return _of_type(field.type, version, topic, topic_id)


def _element(type_: WireType) -> WireType | None:
    return type_.element if isinstance(type_, Array) else None


def _of_type(type_: WireType, version: int, topic: str, topic_id: uuid.UUID) -> Any:
    match type_:
        case Array(element):
            return [_of_type(element, version, topic, topic_id)]
        case Struct(cls):
            return _struct(cls, version, topic, topic_id)
        case Variable.STRING:
            return topic
        case Variable():
            return b""
        case Fixed() if type_ == BOOLEAN:
            return True
        case Fixed() if type_ == UUID128:
            return topic_id
    return 1
