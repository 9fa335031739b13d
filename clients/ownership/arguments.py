"""The arguments of Lease, ExclusiveProducer and ExclusiveConsumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast_log.clients.arguments import (
    A_FUNCTION,
    A_NAME,
    A_PARTITION,
    A_TEXT,
    INT_MAX,
    LONG_MAX,
    PARTITION_NUMBER,
    Kind,
    Refused,
    an_instance,
    an_int,
    mapping,
    optional,
    several,
)
from holdfast_log.clients.ownership.claim_requests import Writer
from holdfast_log.clients.ownership.events import OwnedResource
from holdfast_log.protocol.messages.ownership import IF_FREE, Access
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode

_FOR_EVER = -1


def _take_resource(value: Any) -> OwnedResource:
    resource: OwnedResource = (A_NAME if isinstance(value, str) else A_PARTITION).take(value)
    return resource


def _take_generations(value: Any) -> int | dict[OwnedResource, int]:
    generations: int | dict[OwnedResource, int] = (
        _BY_RESOURCE if isinstance(value, Mapping) else A_GENERATION
    ).take(value)
    return generations


def _take_writer(value: Any) -> Writer:
    if not isinstance(value, Writer):
        raise Refused("write Writer(client_id=...)")
    optional(A_TEXT).take(value.client_id)
    optional(A_TEXT).take(value.principal)
    return value


A_RESOURCE: Final = Kind("a name (str) or a TopicPartition", _take_resource)
RESOURCES: Final = several(
    A_RESOURCE, "names (str) and TopicPartition(topic, partition)", "['name', TopicPartition('topic', 0)]"
)
NUMBERS: Final = several(PARTITION_NUMBER, "partition numbers (int)", "[0, 1]")
A_GENERATION: Final = an_int("a generation, an int from 0 on, or IF_FREE", IF_FREE, LONG_MAX)
_BY_RESOURCE: Final = mapping(A_RESOURCE, A_GENERATION, "{'name': 5}")
GENERATIONS: Final = Kind(
    "a generation, an int from 0 on, or IF_FREE, or a dict of such by resource", _take_generations
)
A_CLAIM_WAIT: Final = an_int(
    f"a time in ms, an int from 0 to {INT_MAX}, or FOR_EVER",
    _FOR_EVER,
    INT_MAX,
    lambda value: f"times are in ms: write {value} * 1000" if isinstance(value, float) else "",
)
A_SESSION: Final = an_int(f"a time in ms, an int from 1 to {INT_MAX}", 1, INT_MAX)
OF_OWNERS: Final = {
    "session_timeout_ms": A_SESSION,
    "owner_id": optional(A_TEXT),
    "producer_id": optional(A_TEXT),
    "on_ownership": A_FUNCTION,
    "access": an_instance(Access, "Access.READ or Access.WRITE"),
    "mode": an_instance(ProducerAccessMode),
    "writer": Kind("a Writer", _take_writer),
}
"""What the constructors of owners have in common."""
