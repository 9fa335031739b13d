"""DescribeOwners (key 30024): the owners of the resources that this broker decides about.

The first request for a group's names reads them from ZooKeeper. DescribeOwners reads the names of the groups
that it lists, or of all groups that this broker coordinates. A client sees the owners of the topics that it
may describe, and of names in groups that it may describe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredList, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.description import describe
from holdfast_log.broker.ownership.resources import Resource
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.answers import TURN_BYTES, LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext
from holdfast_log.coordinator.ownership.records import NameKey
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import NO_PARTITION, PRODUCERS_GROUP
from holdfast_log.protocol.messages.ownership_sight import (
    DescribedResource,
    DescribeOwnersRequest,
    DescribeOwnersResponse,
)

_OWNER_BYTES = 200
"""The usual size of an owner, with its ids and its host."""

NAMED_TOGETHER = 200
"""So many groups or resources that a request names are looked at together."""

_NAMED_BYTES = TURN_BYTES // 2
"""The price of looking at them, in bytes of rows."""

T = TypeVar("T")


@dataclass(eq=False)
class DescribeOwnersHandler(Handler[DescribeOwnersRequest, DescribeOwnersResponse]):
    request = DescribeOwnersRequest
    elements_max = ANY_ELEMENTS
    ownership: OwnershipService
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeOwnersRequest
    ) -> Deferred[DescribeOwnersResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _read_names(
        self, answer: LongAnswer, context: RequestContext, groups: Collection[str] | None
    ) -> None:
        """Wait until the names of the request's groups have been read, or the reads have failed."""
        decided = self.ownership.decided
        if groups is None:
            await answer.outcome(decided.read_all_names().addErrback(_session_expired))
            return
        async for some in _in_turns(answer, groups):
            for group in some:
                if group != PRODUCERS_GROUP:
                    requests.check_group(group)
        async for some in _in_turns(answer, groups):
            lookups = []
            for group in some:
                if not rights.may_see(context, group, "", NO_PARTITION):
                    continue
                try:
                    lookups.append(decided.read_names(group))
                except BrokerError:
                    continue  # Another broker coordinates it.
            await answer.outcome(DeferredList(lookups, consumeErrors=True))

    async def _answer(
        self, context: RequestContext, request: DescribeOwnersRequest
    ) -> DescribeOwnersResponse:
        with self.answers.begin(context, DescribeOwnersResponse) as answer:
            names: set[tuple[str, int]] | None = None
            groups: dict[str, None] | None = None
            asks_for_names = request.resources is None
            if request.resources is not None:
                names = set()
                async for some in _in_turns(answer, request.resources):
                    names.update((each.name, each.partition) for each in some)
                    asks_for_names = asks_for_names or any(each.partition < 0 for each in some)
            if request.groups is not None:
                groups = {}
                async for group_ids in _in_turns(answer, request.groups):
                    groups.update(dict.fromkeys(group_ids))
            if asks_for_names:
                await self._read_names(answer, context, groups)
            rows = answer.rows(DescribedResource)
            for resource in self.ownership.resources():
                if names is not None and _name(resource) not in names:
                    await answer.turn(0)
                    continue
                if not _is_visible(context, resource):
                    await answer.turn(0)
                    continue
                if not await answer.afford(_price(resource, request.include_history)):
                    raise answer.too_long
                for each in describe(
                    resource,
                    self.ownership.now_ms(),
                    self.ownership.last_heard_ms,
                    include_history=request.include_history,
                ):
                    if groups is None or each.group in groups:
                        rows.add(each)
            return DescribeOwnersResponse(error_code=ErrorCode.NONE, resources=rows.finish())

    def failed(
        self, context: RequestContext, request: DescribeOwnersRequest, error: BrokerError
    ) -> DescribeOwnersResponse:
        return DescribeOwnersResponse(error_code=error.code, error_message=error.message, resources=[])


async def _in_turns(answer: LongAnswer, items: Collection[T]) -> AsyncIterator[list[T]]:
    """What a request names, some at a time. Others are served meanwhile if it names many."""
    left = iter(items)
    while some := list(islice(left, NAMED_TOGETHER)):
        yield some
        if len(items) > NAMED_TOGETHER:
            await answer.turn(_NAMED_BYTES)


def _name(resource: Resource) -> tuple[str, int]:
    key = resource.key
    return (key.name, NO_PARTITION) if isinstance(key, NameKey) else (key.topic, key.index)


def _is_visible(context: RequestContext, resource: Resource) -> bool:
    group = resource.key.group if isinstance(resource.key, NameKey) else ""
    return rights.may_see(context, group, *_name(resource))


def _session_expired(failure: Failure) -> None:
    """Ignore the failure: the broker is stopping, and describes the owners that it knows."""
    failure.trap(SessionExpired)


def _price(resource: Resource, include_history: bool) -> int:
    """The size of a resource in its groups, with all who wait for it or share it."""
    count = len(resource.entries) + len(resource.waiters) + len(resource.sharers)
    if include_history:
        count += sum(len(entry.history) for entry in resource.entries.values())
    return count * _OWNER_BYTES
