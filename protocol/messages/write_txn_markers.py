"""WriteTxnMarkers: the leaders of a transaction's partitions write its end, for its coordinator, or for an
administrator who ends a transaction that its coordinator has forgotten (KIP-664)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    """What became of the markers of one producer."""

    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@struct
class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult]


@struct
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    """The end of one producer's transaction: a commit if `transaction_result`, else an abort.

    `coordinator_epoch` is the leader epoch of the coordinator's partition of `__transaction_state`. Leaders
    refuse a marker of an earlier one than they have seen of the producer.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32


@request(key=27, versions="0-1", flexible="1+")
class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse]):
    markers: list[WritableTxnMarker]
