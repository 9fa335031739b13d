"""ListOffsets (key 2): the first offset (-2), the last one (-1), that of the latest timestamp (-3, KIP-734),
or the offset of a given timestamp.

Versions: from 1 on the response has the timestamp, from 4 on the leader epoch of the offset. The last offset
that a consumer gets is the high watermark. A lookup by time may have to decompress a batch, in a worker.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.log.timestamps import LookUp, TimestampOffset
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.workers import Workers
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_FIRST_VERSION_WITH_EPOCH = 4
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5


@dataclass(eq=False)
class ListOffsetsHandler(Handler[ListOffsetsRequest, ListOffsetsResponse]):
    request = ListOffsetsRequest
    replicas: Replicas
    workers: Workers

    def handle(self, context: RequestContext, request: ListOffsetsRequest) -> Deferred[ListOffsetsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        # A lookup may take long: a request must not name one partition a thousand times.
        named = Counter(
            (topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions
        )
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    # One lookup at a time: a request occupies at most one worker.
                    partitions=[
                        await self._partition(context, request.replica_id, topic.name, wanted)
                        if named[topic.name, wanted.partition_index] == 1
                        else _failed(wanted, ErrorCode.INVALID_REQUEST)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _partition(
        self, context: RequestContext, replica_id: int, topic: str, wanted: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0)
        try:
            found = await self._look_up(
                self.replicas.offset_at(
                    topic,
                    wanted.partition_index,
                    wanted.timestamp,
                    replica_id=replica_id,
                    current_leader_epoch=wanted.current_leader_epoch,
                )
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

    async def _look_up(self, look_up: LookUp) -> TimestampOffset | None:
        """Have workers decompress and search batches."""
        try:
            search = next(look_up)
            while True:
                try:
                    found = await self.workers.run(search.run)
                except (BrokerError, OSError) as error:
                    search = look_up.throw(error)
                else:
                    search = look_up.send(found)
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


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
