"""WriteTxnMarkers (key 27, between brokers): a transaction coordinator has the ends of transactions written
into the partitions that this broker leads (KIP-98). The answer comes once all in-sync replicas have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.replication.transaction_markers import TransactionMarkers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.control_records import EndMarker
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_TIMEOUT_MS = 20_000
"""Maximum time in ms for the replicas to copy the markers: less than coordinators wait for the answer."""


@dataclass(eq=False)
class WriteTxnMarkersHandler(Handler[WriteTxnMarkersRequest, WriteTxnMarkersResponse]):
    request = WriteTxnMarkersRequest
    markers: TransactionMarkers

    def handle(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> Deferred[WriteTxnMarkersResponse]:
        # All are appended now, in their order, and then awaited.
        written = [(marker, self._write(marker)) for marker in request.markers]
        return ensureDeferred(_answer(written))

    def _write(self, marker: WritableTxnMarker) -> Deferred[dict[TopicPartition, ErrorCode]]:
        partitions = dict.fromkeys(
            TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
        )
        end = EndMarker(marker.transaction_result, marker.coordinator_epoch)
        return self.markers.write(
            marker.producer_id, marker.producer_epoch, end, list(partitions), _TIMEOUT_MS
        )

    def failed(
        self, context: RequestContext, request: WriteTxnMarkersRequest, error: BrokerError
    ) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                _result(
                    marker,
                    {
                        TopicPartition(topic.name, index): error.code
                        for topic in marker.topics
                        for index in topic.partition_indexes
                    },
                )
                for marker in request.markers
            ]
        )


async def _answer(
    written: list[tuple[WritableTxnMarker, Deferred[dict[TopicPartition, ErrorCode]]]],
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_result(marker, await errors) for marker, errors in written])


def _result(marker: WritableTxnMarker, errors: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=errors[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
