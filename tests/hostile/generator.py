"""Requests that cost a broker the most, built from the declared messages of each API and version.

Each is a valid frame. Its arrays are as long as `socket.request.max.elements` allows, at one level of
nesting or at several; its names exist, repeat, do not exist, or are as long as strings may be; what may be
null asks for everything.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any
from uuid import UUID

from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.wiring.handlers import handler_types
from holdfast_log.protocol.api import Api
from holdfast_log.protocol.fields import Array, Field, Fixed, Struct, Variable, WireType, fields_of
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.models.batches import batch

NUMBERS_PER_ELEMENT = 8
"""So many numbers of a plain list count as one element."""
STRING_BYTES = 30_000
CLIENT_ID = "stranger"
_EPOCH = "session_epoch"
"""0 begins a fetch session, -1 fetches without one."""
_FIRST_SCALE = 0.02
_TRIES = 5
_BROKERS = 4
"""The kind of a resource that is a broker."""
_COMMANDS = frozenset({"forwarded", "remove", "has_refused", "ephemeral", "covers_topic"})
"""Flags that make a request cheaper, or another request."""


class Names(StrEnum):
    """Which names a request has."""

    KNOWN = "existing names"
    SAME = "one existing name"
    UNKNOWN = "unknown names"
    LONG = "long names"


@dataclass(frozen=True, slots=True)
class World:
    """What exists in the cluster."""

    broker_id: int
    topics: Sequence[str]
    """The first has many partitions."""
    topic_ids: Sequence[UUID]
    groups: Sequence[str]
    """Also the names of transactional ids."""
    producer_id: int = -1
    """That of the first transactional id."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to make a request as costly as possible."""

    shape: str
    counts: tuple[int, ...]
    """Elements of arrays by depth of nesting; empty: what may be null is null, and no array has elements."""
    names: Names
    kind: int
    """Value of fields that name a kind of thing."""

    def __str__(self) -> str:
        return f"{self.shape}, {self.names}, kind {self.kind}"


def served_apis() -> list[Api]:
    """Every API with a handler that a client may use, by key."""
    apis = [handler.request.api for handler in handler_types()]
    return sorted((api for api in apis if not api.internal), key=lambda api: api.key)


@cache
def elements_max(api: Api) -> int:
    """How many elements a request of the API may have."""
    (setting,) = [each for each in SETTINGS if each.name == "socket.request.max.elements"]
    (handler,) = [each for each in handler_types() if each.request.api is api]
    return min(int(setting.default), handler.elements_max)


def variants(api: Api, *, is_short: bool) -> Iterator[Variant]:
    """The ways in which requests of the API are built. `is_short`: the few that have found most."""
    depth = depth_of(Struct(api.request))
    kinds = kinds_of(Struct(api.request))
    for kind in kinds[:1] if is_short else kinds:
        yield Variant("everything", (), Names.KNOWN, kind)
    if not depth:
        yield Variant("scalars", (1,), Names.LONG, 0)
        yield Variant("scalars", (1,), Names.KNOWN, 0)
        return
    for shape, counts in _shapes(depth, elements_max(api)):
        for names in (Names.KNOWN, Names.UNKNOWN) if is_short else Names:
            for kind in kinds[:1] if is_short else kinds:
                yield Variant(shape, counts, names, kind)


def _shapes(depth: int, elements: int) -> list[tuple[str, tuple[int, ...]]]:
    shapes = [("many", (elements, *[1] * (depth - 1)))]
    if depth > 1:
        side = round(elements ** (1 / depth))
        shapes.append(("many in one", (*[1] * (depth - 1), elements * NUMBERS_PER_ELEMENT)))
        shapes.append(("many in many", (side,) * depth))
    return shapes


def depth_of(type_: WireType) -> int:
    """How deep arrays are nested in the type."""
    match type_:
        case Array(element=element):
            return 1 + depth_of(element)
        case Struct():
            return max((depth_of(field.type) for field in type_.fields), default=0)
    return 0


def kinds_of(type_: WireType) -> list[int]:
    """Values to try for fields that name a kind of thing, if there are any."""
    names = list(_names_in(type_))
    if _EPOCH in names:
        return [0, -1]
    return [2, 4, 0, 1] if any(map(_is_kind, names)) else [0]


def _names_in(type_: WireType) -> Iterator[str]:
    match type_:
        case Array(element=element):
            yield from _names_in(element)
        case Struct():
            for field in type_.fields:
                if isinstance(field.type, Fixed):
                    yield field.name
                yield from _names_in(field.type)


def _is_kind(name: str) -> bool:
    return name in (_EPOCH, "mode", "access", "config_operation") or name.endswith("_type")


def frame(
    world: World, api: Api, version: int, variant: Variant, correlation_id: int, bytes_max: int
) -> bytes:
    """The request as a frame with its size, of at most about `bytes_max`."""
    scaled = max(1, variant.counts.count(max(variant.counts, default=0)))
    scale, message = _FIRST_SCALE, None
    for _ in range(_TRIES):
        builder = Builder(world, version, variant, scale, bytes_max)
        message = builder.struct(api.request, 0, ())
        share = max(builder.elements / elements_max(api), builder.bytes / bytes_max)
        if share <= 1 and (scale == 1.0 or share > 0.7):
            break
        # A small message shows how large this one becomes.
        scale = min(1.0, scale * (0.95 / max(share, 1e-9)) ** (1 / scaled))
    return join_parts(encode_request(message, version, correlation_id, CLIENT_ID))


class Builder:
    """Builds one message."""

    def __init__(self, world: World, version: int, variant: Variant, scale: float, bytes_max: int) -> None:
        self.bytes = 0
        """Bytes of strings and of bytes so far."""
        self.elements = 0.0
        """Elements of all arrays so far, as the broker counts them."""
        self._world = world
        self._version = version
        self._variant = variant
        self._scale = scale
        self._bytes_max = bytes_max

    def struct(self, cls: type, depth: int, at: tuple[int, ...]) -> Any:
        """A struct at these indexes in the arrays that it is nested in."""
        present, absent = _fields(cls, self._version)
        values = {each.name: self._field(cls, each, depth, at) for each in present}
        for each in absent:
            if each.name in _without_default(cls):
                values[each.name] = [] if each.default == () else each.default
        return cls(**values)

    def _field(self, cls: type, field: Field, depth: int, at: tuple[int, ...]) -> Any:
        if field.tag is not None:
            self.elements += 1
        if self._version in field.nullable and self._is_null(cls, field):
            return None
        match field.type:
            case Array(element=element):
                count = 0 if field.name in _EMPTY else self._count(depth)
                self.elements += (
                    math.ceil(count / NUMBERS_PER_ELEMENT) if isinstance(element, Fixed) else count
                )
                return [self._value(cls, field, element, depth + 1, (*at, i)) for i in range(count)]
        return self._value(cls, field, field.type, depth, at)

    def _is_null(self, cls: type, field: Field) -> bool:
        if isinstance(field.type, Array):
            return not self._variant.counts
        return field.name in _NULL and cls is not InitProducerIdRequest

    def _count(self, depth: int) -> int:
        counts = self._variant.counts
        if depth >= len(counts):
            return 0
        count = counts[depth]
        return max(1, math.floor(count * self._scale)) if count == max(counts) else count

    def _value(self, cls: type, field: Field, type_: WireType, depth: int, at: tuple[int, ...]) -> Any:
        match type_:
            case Struct(cls=nested):
                return self.struct(nested, depth, at)
            case Variable.STRING:
                return self._counted(self._string(cls, field, at))
            case Variable.BYTES:
                return self._counted(self._bytes(field))
            case Variable.RECORDS:
                return self._counted(_records(1))
            case Fixed():
                return self._number(field, type_, at)
        raise AssertionError(f"{field.name} has an unknown type")

    def _counted(self, value: Any) -> Any:
        self.bytes += len(value)
        return value

    def _bytes(self, field: Field) -> bytes:
        if field.name in ("secret", "owner_secret"):
            return b"0123456789abcdef"
        if field.name == "append_id":
            return b""
        return bytes(min(1 << 20, self._bytes_max // 4) if self._variant.names is Names.LONG else 16)

    def _string(self, cls: type, field: Field, at: tuple[int, ...]) -> str:
        index = 0 if self._variant.names is Names.SAME else at[-1] if at else 0
        known = self._known(cls, field)
        if field.name in _FIXED_STRINGS:
            return _FIXED_STRINGS[field.name]
        match self._variant.names:
            case Names.KNOWN | Names.SAME:
                # Names beyond those that exist are unknown ones: none repeats.
                return known[index] if index < len(known) else f"unknown-{index}"
            case Names.UNKNOWN:
                return f"unknown-{'-'.join(map(str, at))}"
        return f"{'-'.join(map(str, at))}-".ljust(STRING_BYTES, "x")

    def _known(self, cls: type, field: Field) -> Sequence[str]:
        if self._variant.kind == _BROKERS and field.name == "resource_name":
            return [str(self._world.broker_id)]
        match _named(cls, field):
            case "groups":
                return self._world.groups
            case "settings":
                return _SETTINGS
        return self._world.topics

    def _number(self, field: Field, type_: Fixed, at: tuple[int, ...]) -> Any:
        name = field.name
        if type_.name == "uuid":
            index = 0 if self._variant.names is Names.SAME else at[-1] if at else 0
            known = self._world.topic_ids
            is_known = self._variant.names is not Names.UNKNOWN and index < len(known)
            return known[index] if is_known else UUID(int=index + 1)
        if type_.name == "bool":
            return name not in _COMMANDS
        if type_.name == "float64":
            return 1e9
        if _is_kind(name):
            return self._variant.kind
        if name.endswith("producer_id"):
            return self._world.producer_id
        if name.endswith("producer_epoch"):
            return 0
        numbered = _numbered(name)
        if numbered == "brokers":
            return self._world.broker_id
        if numbered == "partitions":
            return 0 if self._variant.names is Names.SAME or not at else at[-1]
        return _NUMBERS.get(name, -1 if type_.name != "int8" else 0)


_NULL = frozenset(
    {"transactional_id", "group_instance_id", "writer_client_id", "writer_principal", "cluster_id"}
)
_EMPTY = frozenset({"forgotten_topics_data"})
"""Lists that a fetch without a session must not have."""
_SETTINGS = ("retention.ms", "cleanup.policy", "segment.bytes")
_FIXED_STRINGS = {
    "protocol_type": "consumer",
    "entity_type": "user",
    "client_software_name": "stranger",
    "client_software_version": "1",
    "assignment_strategy": "",
}
_NUMBERS = {
    "timestamp": 0,
    "acks": -1,
    "timeout_ms": 1000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 2**31 - 1,
    "partition_max_bytes": 2**20,
    "session_timeout_ms": 10_000,
    "session_timeout": 10_000,
    "rebalance_timeout_ms": 10_000,
    "wait_timeout_ms": 0,
    "session_id": 0,
    "fetch_offset": 0,
    "leader_epoch": 0,
    "committed_offset": 0,
    "offset": 0,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2000,
    "value": 1,
    "isolation_level": 0,
    "transaction_timeout_ms": 60_000,
    "current_leader_epoch": -1,
}


@cache
def _fields(cls: type, version: int) -> tuple[list[Field], list[Field]]:
    """The fields that the version has, and those that it does not have."""
    declared = fields_of(cls)
    return (
        [each for each in declared if version in each.versions],
        [each for each in declared if version not in each.versions],
    )


@cache
def _without_default(cls: Any) -> frozenset[str]:
    """The fields whose values the constructor has to be given."""
    return frozenset(
        each.name
        for each in dataclasses.fields(cls)
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    )


@cache
def _named(cls: type, field: Field) -> str:
    """What the field names."""
    where = cls.__name__ + field.name
    if "onfig" in cls.__name__ and field.name == "name":
        return "settings"
    if field.name in ("name", "topic", "topics", "member_id", "owner_id"):
        return "topics"
    return "groups" if re.search("roup|ransactional|^FindCoordinatorRequest", where) else "topics"


@cache
def _numbered(name: str) -> str:
    """What the number counts."""
    if re.search("broker_ids|replicas|broker_id|node_id", name):
        return "brokers"
    is_index = re.search("partition|index", name) and "max_bytes" not in name and "num" not in name
    return "partitions" if is_index else ""


@cache
def _records(count: int) -> bytes:
    return batch(*[b"x"] * count)
