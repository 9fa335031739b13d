"""What a request names, and what its answer names, for APIs whose answer has a row for each thing asked for.

A row that is missing would count as done, or as "nothing committed"; a row of something else would be
reported to the application as its own. So each thing that was asked for has to be answered exactly once, and
no other.
An answer that fails as a whole has an error code, and may have no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeAlias

from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.schema import MalformedMessage

Things: TypeAlias = Iterable[Hashable]

_SHOWN_MAX = 3
_OFFSET_FETCH = "OffsetFetch"


def check_complete(request: Request[Any], response: Response) -> None:
    """Raise MalformedMessage for a response that does not answer exactly what `request` names, if its API
    has a row for each thing."""
    counted = COUNTED.get(request.api.name)
    if counted is not None:
        _check_count(len(getattr(request, counted[0])), len(getattr(response, counted[1])))
    found = COMPLETE.get(request.api.name)
    if found is None or getattr(response, "error_code", None):
        return
    if any(
        group.error_code for group in getattr(response, "groups", ()) if request.api.name == _OFFSET_FETCH
    ):
        return
    asked, answered = found
    wanted = asked(request)
    if wanted is None:
        return  # All that there is.
    open_, there = set(wanted), Counter(answered(response))
    strange = [thing for thing, count in there.items() if thing not in open_ or count > 1]
    if strange:
        raise MalformedMessage(f"the answer names {_shown(strange)}, which was not asked for, or twice")
    missing = [thing for thing in open_ if thing not in there]
    if missing:
        raise MalformedMessage(f"the answer does not name {_shown(missing)}, which was asked for")


def _check_count(asked: int, answered: int) -> None:
    if asked != answered:
        raise MalformedMessage(f"the answer has {answered} results for {asked} things that were asked for")


def _shown(things: list[Hashable]) -> str:
    shown = ", ".join(f"{thing!r:.100}" for thing in things[:_SHOWN_MAX])
    more = len(things) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _rows(topics: Any, name: str, partitions: str, number: str) -> Iterator[Hashable]:
    """(topic, partition) of rows of partitions in rows of topics, by the names of their fields."""
    for topic in topics:
        for row in getattr(topic, partitions):
            yield getattr(topic, name), getattr(row, number)


def _numbers(topics: Any, name: str, partitions: str) -> Iterator[Hashable]:
    """(topic, partition) of plain numbers in rows of topics."""
    for topic in topics:
        for number in getattr(topic, partitions):
            yield getattr(topic, name), number


def _committed_asked(request: Any) -> Things | None:
    """From version 8 on the request names groups, before it names one; ours is for one group."""
    return None if request.topics is None else _numbers(request.topics, "name", "partition_indexes")


def _committed_answered(response: Any) -> Things:
    """`answers` checks that there is no other group."""
    topics = [topic for group in response.groups for topic in group.topics]
    return _rows(topics or response.topics, "name", "partitions", "partition_index")


def _resources(rows: Any) -> Things:
    return [(row.resource_type, row.resource_name) for row in rows]


def _entities(rows: Any) -> Things:
    return [frozenset((part.entity_type, part.entity_name) for part in row.entity) for row in rows]


def _partitions(request_rows: str, response_rows: str = "topics") -> tuple[Any, Any]:
    """Both sides, where topics have rows of partitions with the usual names."""
    return (
        lambda request: _rows(getattr(request, request_rows), "name", "partitions", "partition_index"),
        lambda response: _rows(getattr(response, response_rows), "name", "partitions", "partition_index"),
    )


COMPLETE: dict[str, tuple[Callable[[Any], Things | None], Callable[[Any], Things]]] = {
    "AlterClientQuotas": (
        lambda request: _entities(request.entries), lambda response: _entities(response.entries)
    ),
    "AlterPartitionReassignments": _partitions("topics", "responses"),
    "CreatePartitions": (
        lambda request: [row.name for row in request.topics],
        lambda response: [row.name for row in response.results],
    ),
    "CreateTopics": (
        lambda request: [row.name for row in request.topics],
        lambda response: [row.name for row in response.topics],
    ),
    "DeleteGroups": (
        lambda request: request.groups_names, lambda response: [row.group_id for row in response.results]
    ),
    "DeleteRecords": _partitions("topics"),
    "DeleteTopics": (
        lambda request: request.topic_names, lambda response: [row.name for row in response.responses]
    ),
    "DescribeConfigs": (
        lambda request: _resources(request.resources), lambda response: _resources(response.results)
    ),
    "DescribeGroups": (
        lambda request: request.groups, lambda response: [row.group_id for row in response.groups]
    ),
    "DescribeProducers": (
        lambda request: _numbers(request.topics, "name", "partition_indexes"),
        lambda response: _rows(response.topics, "name", "partitions", "partition_index"),
    ),
    "IncrementalAlterConfigs": (
        lambda request: _resources(request.resources), lambda response: _resources(response.responses)
    ),
    "OffsetCommit": _partitions("topics"),
    "OffsetDelete": _partitions("topics"),
    "OffsetFetch": (_committed_asked, _committed_answered),
}  # fmt: skip
"""By the name of an API: what a request names (None: all that there is), and what a response names."""

COUNTED = {"CreateAcls": ("creations", "results"), "DeleteAcls": ("filters", "filter_results")}
"""By the name of an API whose answer has a result for each thing in the request's order, without its name:
the lists of both."""
