"""ListOffsets (key 2): the first offset (-2), the last one (-1), that of the latest timestamp (-3, KIP-734),
or the offset of a given timestamp.

Versions: from 1 on the response has the timestamp, from 4 on the leader epoch of the offset. The last offset
that a consumer gets is the high watermark, from version 2 on with isolation level 1 the last stable offset.
Workers walk over the batches and decompress them for lookups by time: one lookup of a request at a time,
and one of all requests, connections in turn.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.lanes import Lane
from holdfast_log.broker.log.timestamps import LookUp, TimestampOffset
from holdfast_log.broker.replication import offset_lookup
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    Handler,
    RequestContext,
    RowPaths,
    check_replica,
)
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_SEARCHES_MAX = 1
"""Maximum number of steps of searches that run at a time. Connections take turns."""
_AT_ONCE_MAX = 32
"""Partitions of a request after which others are served, though nothing has to be searched in any."""
_FIRST_VERSION_WITH_EPOCH = 4
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5


@dataclass(eq=False)
class ListOffsetsHandler(Handler[ListOffsetsRequest, ListOffsetsResponse]):
    request = ListOffsetsRequest
    parts = (RowPaths(("topics", "partitions"), ("topics", "partitions")),)
    elements_max = ANY_ELEMENTS
    replicas: Replicas
    decompression: DecompressionBudget

    def __post_init__(self) -> None:
        budget = self.decompression
        self._searches = Lane(budget.share(budget.batch_bytes_max), _SEARCHES_MAX)

    def handle(self, context: RequestContext, request: ListOffsetsRequest) -> Deferred[ListOffsetsResponse]:
        check_replica(context, request.replica_id)
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        # A lookup may take long: a request must not name one partition a thousand times.
        named = Counter(
            (topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions
        )
        topics = []
        number = 0
        for topic in request.topics:
            rows = []
            denied = context.denial(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name)
            for wanted in topic.partitions:
                number += 1
                if number % _AT_ONCE_MAX == 0:
                    await self._searches.run(context.connection, _search_nothing)
                if denied is not None:
                    rows.append(_failed(wanted, denied.code))
                elif named[topic.name, wanted.partition_index] > 1:
                    rows.append(_failed(wanted, ErrorCode.INVALID_REQUEST))
                else:
                    rows.append(await self._partition(context, request, topic.name, wanted))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    async def _partition(
        self, context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0)
        try:
            found = await self._look_up(
                context,
                offset_lookup.offset_at(
                    self.replicas.partition(topic, wanted.partition_index),
                    wanted.timestamp,
                    replica_id=request.replica_id,
                    current_leader_epoch=wanted.current_leader_epoch,
                    isolation=request.isolation_level,
                ),
            )
        except BrokerError as error:
            response.error_code = error.code
            if (
                error.code == ErrorCode.OFFSET_NOT_AVAILABLE
                and context.version < _FIRST_VERSION_WITH_NOT_AVAILABLE
            ):
                response.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            return response
        if found is not None:
            response.offset = found.offset
            response.timestamp = found.timestamp
            if context.version >= _FIRST_VERSION_WITH_EPOCH:
                response.leader_epoch = found.leader_epoch
        return response

    async def _look_up(self, context: RequestContext, look_up: LookUp) -> TimestampOffset | None:
        """Have workers search. Raises BrokerError."""
        try:
            search = next(look_up)
            while True:
                try:
                    step = await self._searches.run(
                        context.connection, search.run, self.decompression.batch_bytes_max
                    )
                except (BrokerError, OSError) as error:
                    search = look_up.throw(error)
                else:
                    search = look_up.send(step)
        except StopIteration as end:
            result: TimestampOffset | None = end.value
            return result

    def failed(
        self, context: RequestContext, request: ListOffsetsRequest, error: BrokerError
    ) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[_failed(wanted, error.code) for wanted in topic.partitions],
                )
                for topic in request.topics
            ]
        )


def _search_nothing() -> None:
    """Work that ends the turn of the reactor, and waits for that of the connection."""


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
