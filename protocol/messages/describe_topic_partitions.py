"""DescribeTopicPartitions: the partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class PageCursor:
    """The first partition of a page."""

    topic_name: str
    partition_index: Int32


@struct
class DescribedPartition:
    """`leader_id` is -1 if there is currently no leader. The eligible leader replicas are those of KIP-966;
    null: not known."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32]


@struct
class DescribedTopic:
    error_code: Int16
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: list[DescribedPartition]
    topic_authorized_operations: Int32 = -2147483648


@struct
class DescribeTopicPartitionsResponse(Response):
    """`next_cursor` is where the next page begins; null: this is the last one."""

    throttle_time_ms: Int32
    topics: list[DescribedTopic]
    next_cursor: PageCursor | None = None


@struct
class DescribeTopicRequest:
    name: str


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    """No topics: all of them. The response begins at `cursor`, with up to `response_partition_limit`
    partitions."""

    topics: list[DescribeTopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: PageCursor | None = None
