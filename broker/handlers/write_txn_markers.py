"""WriteTxnMarkers (key 27): the leaders of a transaction's partitions write its end (KIP-98).

Its coordinator asks for that, and is answered once all in-sync replicas have the markers. A client asks to
end a transaction that its coordinator has forgotten (KIP-664: Kafka's `Admin.abortTransaction`, and
`kafka-transactions.sh --abort`). As in Kafka it needs ALTER or CLUSTER_ACTION of the cluster, and here also a
listener that may alter the cluster. It may only abort, because a coordinator alone knows what has been
decided, and only in the name of a coordinator that the partition has seen: a later one would shut out the
real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.replication.transaction_markers import TransactionMarkers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext, RowPaths
from holdfast_log.protocol.acls import AclOperation, AclResource
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
    parts = (RowPaths(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),)
    parts_overlap: ClassVar[bool] = True
    is_long_from_brokers: ClassVar[bool] = True
    markers: TransactionMarkers
    rights: ClusterRights

    def handle(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> Deferred[WriteTxnMarkersResponse]:
        if not context.is_broker:
            self._check_client(context, request)
        # All of a part are appended now, in their order, and then awaited: the next part is not.
        written = [(marker, self._write(context, marker)) for marker in request.markers]
        return ensureDeferred(_answer(written))

    def _check_client(self, context: RequestContext, request: WriteTxnMarkersRequest) -> None:
        self.rights.check_listener(context, "abort transactions")
        if not context.may(AclOperation.ALTER, AclResource.CLUSTER, is_noted=False):
            context.check(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        if any(marker.transaction_result for marker in request.markers):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "only a transaction's coordinator may commit: clients may abort"
            )

    def _write(
        self, context: RequestContext, marker: WritableTxnMarker
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        partitions = _partitions(marker)
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        end = EndMarker(marker.transaction_result, marker.coordinator_epoch)
        if context.is_broker:
            return self.markers.write(producer_id, epoch, end, partitions, _TIMEOUT_MS)
        refused = self.markers.without_coordinator(producer_id, end, partitions)
        allowed = [each for each in partitions if each not in refused]
        if allowed:
            what = "Aborted transactions of producer %d, epoch %d, in %d partitions: %s"
            log_change(context, what, producer_id, epoch, len(allowed), shown([*map(str, allowed)]))
        return self.markers.write(producer_id, epoch, end, allowed, _TIMEOUT_MS).addCallback(
            lambda errors: errors | dict.fromkeys(refused, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        )

    def failed(
        self, context: RequestContext, request: WriteTxnMarkersRequest, error: BrokerError
    ) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                _result(marker, dict.fromkeys(_partitions(marker), error.code)) for marker in request.markers
            ]
        )


def _partitions(marker: WritableTxnMarker) -> Sequence[TopicPartition]:
    """The partitions that a marker names, each once."""
    named = (TopicPartition(each.name, index) for each in marker.topics for index in each.partition_indexes)
    return list(dict.fromkeys(named))


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
