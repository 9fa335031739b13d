"""OffsetCommit: store a group's read positions."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: str
    partitions: list[OffsetCommitResponsePartition]


@struct
class OffsetCommitResponse(Response):
    throttle_time_ms: Int32 = wire("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire("6+", default=-1, ignorable=True)
    committed_metadata: str | None
    owner_token: Int64 = wire("8+", default=-1, tag=10000, ignorable=True)


@struct
class OffsetCommitRequestTopic:
    name: str
    partitions: list[OffsetCommitRequestPartition]


@request(key=8, versions="2-9", flexible="8+")
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """A simple consumer, outside of any group membership, has generation -1 and no member id. Version 9 is
    the first for members of consumer groups (KIP-848), which send their epochs.

    The tagged fields are Holdfast's own. A consumer that owns the partitions (own API) names its
    `owner_group`, and for each partition the incarnation of its grant as `owner_token`. Offsets of partitions
    that it has lost are refused with OWNERSHIP_FENCED.
    """

    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str
    group_instance_id: str | None = wire("7+", default=None)
    retention_time_ms: Int64 = wire("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]
    owner_group: str | None = wire("8+", default=None, tag=10000, ignorable=True)
