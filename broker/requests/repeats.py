"""Requests that name a thing more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Protocol

from holdfast_log.protocol.errors import BrokerError, ErrorCode


def repeated(things: Iterable[Hashable]) -> frozenset[Hashable]:
    """What is named more than once. Changes of one thing would overtake each other in ZooKeeper, and each
    time all but one would begin again: hundreds in one request would take minutes."""
    return frozenset(thing for thing, count in Counter(things).items() if count > 1)


class ConfiguredResource(Protocol):
    """What a request to alter configurations names."""

    resource_type: int
    resource_name: str


def repeated_resources(resources: Iterable[ConfiguredResource]) -> frozenset[Hashable]:
    """The resources, by type and name, that are named more than once."""
    return repeated((each.resource_type, each.resource_name) for each in resources)


def resource_named_twice() -> BrokerError:
    """The refusal of a resource that a request names more than once."""
    return BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
