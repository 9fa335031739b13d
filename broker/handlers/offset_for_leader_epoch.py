"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, from which a reader learns where its log
and the leader's diverge (KIP-101, KIP-279, KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, check_replica
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@dataclass(eq=False)
class OffsetForLeaderEpochHandler(Handler[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse]):
    request = OffsetForLeaderEpochRequest
    elements_max = ANY_ELEMENTS
    replicas: Replicas
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> Deferred[OffsetForLeaderEpochResponse]:
        check_replica(context, request.replica_id)
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        with self.answers.begin(context, OffsetForLeaderEpochResponse) as answer:
            topics = answer.rows(OffsetForLeaderTopicResult)
            for topic in request.topics:
                rows = answer.rows(EpochEndOffset)
                denied = context.denial(AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic)
                for wanted in topic.partitions:
                    await answer.turn(0)
                    if denied is None:
                        rows.add(self._partition(topic.topic, wanted))
                    else:
                        rows.add(EpochEndOffset(error_code=denied.code, partition=wanted.partition))
                topics.add(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows.finish()))
            return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics.finish())

    def failed(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest, error: BrokerError
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        EpochEndOffset(error_code=error.code, partition=wanted.partition)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _partition(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self.replicas.partition(topic, wanted.partition)
            epoch, end_offset = partition.end_offset_for_epoch(
                wanted.leader_epoch, wanted.current_leader_epoch
            )
        except BrokerError as error:
            return EpochEndOffset(error_code=error.code, partition=wanted.partition)
        return EpochEndOffset(
            error_code=ErrorCode.NONE, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
        )
