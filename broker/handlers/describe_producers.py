"""DescribeProducers (key 61): the producers whose sequences a partition's leader remembers (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@dataclass(eq=False)
class DescribeProducersHandler(Handler[DescribeProducersRequest, DescribeProducersResponse]):
    request = DescribeProducersRequest
    replicas: Replicas

    def handle(self, context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            throttle_time_ms=0,
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[self._partition(topic.name, index) for index in topic.partition_indexes],
                )
                for topic in request.topics
            ],
        )

    def _partition(self, topic: str, index: int) -> PartitionResponse:
        try:
            partition = self.replicas.partition(topic, index)
            partition.leadership()
        except BrokerError as error:
            return PartitionResponse(
                partition_index=index,
                error_code=error.code,
                error_message=error.message,
                active_producers=[],
            )
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            active_producers=[
                ProducerState(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_write_ms,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_offset,
                )
                for entry in partition.log.producers.entries()
            ],
        )
