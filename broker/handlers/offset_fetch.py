"""OffsetFetch (key 9): the committed offsets of groups; -1 where nothing was committed.

Versions: from 2 on null means all partitions of a group, and an error is that of the whole response instead
of each partition's; from 8 on a request may name several groups (KIP-709). With `require_stable` (from 7 on)
a partition whose offset an open transaction may replace has the error UNSTABLE_OFFSET_COMMIT (KIP-447). From
9 on a member of a consumer group names itself and its epoch (KIP-848).

A request for all partitions is answered as one that names them: a group may have tens of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from twisted.internet.defer import Deferred, ensureDeferred, fail, gatherResults
from twisted.python.failure import Failure

from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    DIVISION_STEP_ROWS,
    Handler,
    RequestContext,
    RowPaths,
    refusal,
)
from holdfast_log.coordinator.groups.effects import OffsetsAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_VERSION_WITH_ERROR_OF_ALL = 2
_FIRST_VERSION_WITH_GROUPS = 8

_NAMED_BYTES = 8
"""The price of naming a partition: 0.2 µs."""


@dataclass(eq=False)
class OffsetFetchHandler(Handler[OffsetFetchRequest, OffsetFetchResponse]):
    request = OffsetFetchRequest
    parts = (
        RowPaths(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
        RowPaths(("topics", "partition_indexes"), ("topics", "partitions")),
    )
    may_ask_for_all = True
    elements_max = ANY_ELEMENTS
    groups: GroupService
    committers: CommitterCheck
    answers: LongAnswers

    def handle(self, context: RequestContext, request: OffsetFetchRequest) -> Deferred[OffsetFetchResponse]:
        if context.version < _FIRST_VERSION_WITH_GROUPS:
            asked_one = self._ask(context, request, request.group_id, request.topics, None, -1)
            return asked_one.addCallback(_of_one)
        if _names_twice(request):
            raise _named_twice()
        asked = [
            self._ask(
                context, request, group.group_id, group.topics, group.member_id, group.member_epoch
            ).addErrback(_failed_group, group.group_id)
            for group in request.groups
        ]
        return gatherResults(asked).addCallback(_of_several)

    def named(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> Deferred[OffsetFetchRequest] | None:
        if context.version < _FIRST_VERSION_WITH_GROUPS:
            return None if request.topics is not None else ensureDeferred(self._name_one(context, request))
        if all(group.topics is not None for group in request.groups) or _names_twice(request):
            return None
        return ensureDeferred(self._name_several(context, request))

    async def _name_one(self, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchRequest:
        found = await self._committed(context, request, request.group_id)
        if found is None:
            return request
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=found[name]) for name in found]
        return replace(request, topics=topics)

    async def _name_several(self, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchRequest:
        groups = []
        with self.answers.begin(context, OffsetFetchResponse) as answer:
            for group in request.groups:
                if group.topics is None:
                    found = await answer.outcome(
                        ensureDeferred(self._committed(context, request, group.group_id))
                    )
                    group = group if found is None else _naming(group, found)
                    await answer.turn(_NAMED_BYTES * sum(map(len, (found or {}).values())))
                groups.append(group)
        return replace(request, groups=groups)

    async def _committed(
        self, context: RequestContext, request: OffsetFetchRequest, group_id: str
    ) -> dict[str, list[int]] | None:
        """The partitions of a group's offsets that the client may describe, by topic. None if they cannot be
        read: then `handle` answers with the reason."""
        if not context.may(AclOperation.DESCRIBE, AclResource.GROUP, group_id, is_noted=False):
            return None
        try:
            partitions = await self.groups.ask(
                group_id,
                lambda shard, waiting, _: shard.committed_partitions(
                    waiting, group_id, require_stable=request.require_stable
                ),
            )
        except BrokerError:
            return None
        may_describe = cache(partial(_may_describe, context, is_noted=False))
        found: dict[str, list[int]] = {}
        for topic, index in partitions:
            if may_describe(topic):
                found.setdefault(topic, []).append(index)
        return found

    def _ask(
        self,
        context: RequestContext,
        request: OffsetFetchRequest,
        group_id: str,
        topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
        member_id: str | None,
        epoch: int,
    ) -> Deferred[_Offsets]:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if denied is not None:
            return fail(denied)
        partitions, refused = None, []
        may_describe = cache(partial(_may_describe, context, is_noted=topics is not None))
        if topics is not None:
            refused = [topic for topic in topics if not may_describe(topic.name)]
            # Each partition once: the metadata of an offset may be a thousand times as long as a partition's
            # number.
            partitions = dict.fromkeys(
                TopicPartition(topic.name, index)
                for topic in topics
                if may_describe(topic.name)
                for index in topic.partition_indexes
            )
        self.committers.positions_read(group_id)
        return self.groups.ask(
            group_id,
            lambda shard, waiting, _: shard.fetch_offsets(
                waiting,
                group_id,
                partitions,
                require_stable=request.require_stable,
                member_id=member_id,
                epoch=epoch,
            ),
        ).addCallback(lambda answer: _visible(answer, may_describe, refused))

    def divisible_steps(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> Generator[None, None, bool]:
        seen: set[str] = set()
        for number, group in enumerate(request.groups):
            if number % DIVISION_STEP_ROWS == 0:
                yield
            if group.group_id in seen:
                raise _named_twice()
            seen.add(group.group_id)
        return True

    def failed(
        self, context: RequestContext, request: OffsetFetchRequest, error: BrokerError
    ) -> OffsetFetchResponse:
        if context.version >= _FIRST_VERSION_WITH_GROUPS:
            return OffsetFetchResponse(
                throttle_time_ms=0,
                groups=[
                    OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
                    for group in request.groups
                ],
            )
        if context.version >= _FIRST_VERSION_WITH_ERROR_OF_ALL:
            return OffsetFetchResponse(throttle_time_ms=0, topics=[], error_code=error.code)
        return OffsetFetchResponse(
            throttle_time_ms=0,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index, committed_offset=-1, metadata="", error_code=error.code
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or ()
            ],
        )


class _Offset(NamedTuple):
    """A row of a partition."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class _Offsets(NamedTuple):
    """What a client gets to see of a group's offsets, by topic."""

    group_id: str
    error: ErrorCode
    topics: dict[str, list[_Offset]]


def _may_describe(context: RequestContext, topic: str, *, is_noted: bool) -> bool:
    return context.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic, is_noted=is_noted)


def _visible(
    answer: OffsetsAnswer,
    may_describe: Callable[[str], bool],
    refused: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics],
) -> _Offsets:
    """The offsets of topics that the client may describe, and the errors of those that it has named and
    that are refused."""
    topics: dict[str, list[_Offset]] = {}
    for found in answer.offsets:
        (topic, index) = found.partition
        if may_describe(topic):
            row = _Offset(index, found.offset, found.leader_epoch, found.metadata, found.error)
            topics.setdefault(topic, []).append(row)
    for denied in refused:
        rows = topics.setdefault(denied.name, [])
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows += [_Offset(index, -1, -1, "", error) for index in dict.fromkeys(denied.partition_indexes)]
    return _Offsets(answer.group_id, answer.error, topics)


def _of_one(answer: _Offsets) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        throttle_time_ms=0,
        error_code=answer.error,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=found.partition,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=found.error,
                    )
                    for found in offsets
                ],
            )
            for name, offsets in answer.topics.items()
        ],
    )


def _of_several(answers: list[_Offsets]) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        throttle_time_ms=0,
        groups=[
            OffsetFetchResponseGroup(
                group_id=answer.group_id,
                error_code=answer.error,
                topics=[
                    OffsetFetchResponseTopics(
                        name=name,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=found.partition,
                                committed_offset=found.offset,
                                committed_leader_epoch=found.leader_epoch,
                                metadata=found.metadata,
                                error_code=found.error,
                            )
                            for found in offsets
                        ],
                    )
                    for name, offsets in answer.topics.items()
                ],
            )
            for answer in answers
        ],
    )


def _failed_group(failure: Failure, group_id: str) -> _Offsets:
    return _Offsets(group_id, refusal(failure).code, {})


def _naming(group: OffsetFetchRequestGroup, found: dict[str, list[int]]) -> OffsetFetchRequestGroup:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=found[name]) for name in found]
    return replace(group, topics=topics)


def _names_twice(request: OffsetFetchRequest) -> bool:
    return len({group.group_id for group in request.groups}) != len(request.groups)


def _named_twice() -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, "the request names a group several times")
