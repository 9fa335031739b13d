"""DescribeProducers (key 61): the producers whose sequences a replica of a partition remembers (KIP-664).

Followers answer too, as in Apache Kafka: tools compare what each replica remembers."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_PRODUCER_BYTES = 40
_PRODUCERS_PER_STEP = 256
"""Producers that are listed without a look at how long the turn has been."""


@dataclass(eq=False)
class DescribeProducersHandler(Handler[DescribeProducersRequest, DescribeProducersResponse]):
    request = DescribeProducersRequest
    elements_max = ANY_ELEMENTS
    replicas: Replicas
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeProducersRequest
    ) -> Deferred[DescribeProducersResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        # Each partition once: its producers may be ten thousand times as long as its index.
        indexes: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        with self.answers.begin(context, DescribeProducersResponse) as answer:
            topics = answer.rows(TopicResponse)
            for name, wanted in indexes.items():
                await answer.turn(len(name))
                partitions = answer.rows(PartitionResponse)
                denied = context.denial(AclOperation.READ, AclResource.TOPIC, name)
                for index in wanted:
                    if denied is None:
                        partitions.add(await self._partition(answer, name, index))
                        continue
                    is_affordable = await answer.afford(len(denied.message))
                    partitions.add(_failed(index, denied if is_affordable else answer.too_long))
                topics.add(TopicResponse(name=name, partitions=partitions.finish()))
            return DescribeProducersResponse(throttle_time_ms=0, topics=topics.finish())

    async def _partition(self, answer: LongAnswer, topic: str, index: int) -> PartitionResponse:
        try:
            partition = self.replicas.partition(topic, index)
        except BrokerError as error:
            is_affordable = await answer.afford(len(error.message))
            return _failed(index, error if is_affordable else answer.too_long)
        producers = partition.log.producers.entries()
        if not answer.reserve(len(producers) * _PRODUCER_BYTES):
            await answer.turn(0)
            return _failed(index, answer.too_long)
        rows = answer.rows(ProducerState)
        for number, entry in enumerate(producers):
            if number % _PRODUCERS_PER_STEP == 0:
                left = len(producers) - number
                await answer.turn(min(left, _PRODUCERS_PER_STEP) * _PRODUCER_BYTES)
            rows.add(
                ProducerState(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_write_ms,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_offset,
                )
            )
        return PartitionResponse(
            partition_index=index, error_code=ErrorCode.NONE, active_producers=rows.finish()
        )


def _failed(index: int, error: BrokerError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )
