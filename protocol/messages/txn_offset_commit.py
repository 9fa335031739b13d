"""TxnOffsetCommit: offsets of a group that count once a transaction is committed (KIP-98, KIP-447)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.offset_commit import OffsetCommitResponseTopic
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class TxnOffsetCommitResponse(Response):
    throttle_time_ms: Int32
    topics: list[OffsetCommitResponseTopic]


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire("2+", default=-1, ignorable=True)
    committed_metadata: str | None
    owner_token: Int64 = wire("3+", default=-1, tag=10000, ignorable=True)


@struct
class TxnOffsetCommitRequestTopic:
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


@request(key=28, versions="0-5", flexible="3+", transactions_2="5+")
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """From version 3 on the committing member is named, so that one of an earlier generation is refused
    (KIP-447). From version 5 on the request adds the group to the transaction (KIP-890). The tagged fields
    are those of OffsetCommit.
    """

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = wire("3+", default=-1)
    member_id: str = wire("3+", default="")
    group_instance_id: str | None = wire("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]
    owner_group: str | None = wire("3+", default=None, tag=10000, ignorable=True)
