"""The topics of consumer groups: their ids, their partitions, and those that match a regular expression."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

from holdfast_log.coordinator.groups.consumer_assignment import IdPartition, Partitions
from holdfast_log.coordinator.groups.consumer_records import TopicOfGroup

_INTERNAL = ("__consumer_offsets", "__transaction_state")
_REGEX_MEMORY_BYTES = 1 << 20
"""Memory that a compiled expression may need: what needs more is refused."""


class RegexRefused(ValueError):
    """A regular expression cannot be used; the message says why."""


class ClusterTopics(Protocol):
    """The topics of the cluster."""

    def topic_id(self, name: str) -> UUID:
        """The topic's id; the zero id if there is no such topic."""
        ...

    def partition_count(self, topic: str) -> int:
        """Number of partitions; 0 if there is no such topic."""
        ...

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""
        ...


class NoTopics:
    """A cluster without topics, for groups of protocols that need no ids."""

    def topic_id(self, name: str) -> UUID:
        return UUID(int=0)

    def partition_count(self, topic: str) -> int:
        return 0

    def topic_names(self) -> Iterable[str]:
        return ()


def topics_named(cluster: ClusterTopics, names: Iterable[str]) -> tuple[TopicOfGroup, ...]:
    """Those of `names` that exist, in order."""
    found = (
        TopicOfGroup(cluster.topic_id(name), name, cluster.partition_count(name)) for name in sorted(names)
    )
    return tuple(topic for topic in found if topic.partitions and topic.topic_id.int)


def partitions_named(cluster: ClusterTopics, named: Iterable[tuple[str, int]]) -> Partitions:
    """Those of the partitions, by topic and number, that exist."""
    return frozenset(
        IdPartition(cluster.topic_id(name), number)
        for name, number in named
        if 0 <= number < cluster.partition_count(name) and cluster.topic_id(name).int
    )


def topics_matching(
    cluster: ClusterTopics, expression: str, may_see: Callable[[str], bool]
) -> frozenset[str]:
    """The topics whose whole names match a regular expression, of those that the client may see. Raises
    RegexRefused."""
    pattern = compiled(expression)
    return frozenset(
        name
        for name in cluster.topic_names()
        if name not in _INTERNAL and pattern.fullmatch(name) and may_see(name)
    )


@lru_cache(maxsize=256)
def compiled(expression: str) -> Any:
    """The pattern of an expression in RE2's syntax, which matches in linear time whatever the expression is.
    The library is an extra of this package: nothing else needs it. Raises RegexRefused."""
    try:
        re2 = importlib.import_module("re2")
    except ImportError:
        raise RegexRefused(
            "this broker matches no regular expressions: install holdfast-log[regex], which brings RE2"
        ) from None
    options = re2.Options()
    options.max_mem = _REGEX_MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise RegexRefused(f"the regular expression is not in RE2's syntax: {said[:200]}") from None
