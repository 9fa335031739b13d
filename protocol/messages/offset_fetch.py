"""OffsetFetch: the committed offsets of groups (KIP-709: several from v8; KIP-848: members from v9)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire("5-7", default=-1, ignorable=True)
    metadata: str | None
    error_code: Int16


@struct
class OffsetFetchResponseTopic:
    name: str
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: str | None
    error_code: Int16


@struct
class OffsetFetchResponseTopics:
    name: str
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


@struct
class OffsetFetchResponse(Response):
    throttle_time_ms: Int32 = wire("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire("1-7")
    error_code: Int16 = wire("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire("8+")


@struct
class OffsetFetchRequestTopic:
    name: str
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics:
    name: str
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    group_id: str
    member_id: str | None = wire("9+", default=None, ignorable=True)
    member_epoch: Int32 = wire("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None


@request(key=9, versions="1-9", flexible="6+")
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """If `topics` is null, all are returned. From version 8 on `groups` replaces both fields (KIP-709)."""

    group_id: str = wire("1-7", ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None = wire("1-7", nullable="2-7", ignorable=True)
    groups: list[OffsetFetchRequestGroup] = wire("8+", ignorable=True)
    require_stable: bool = wire("7+")
