"""ConsumerGroupDescribe: state and members of consumer groups (KIP-848, KIP-1099)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class DescribedTopicPartitions:
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]


@struct
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions]


@struct
class DescribedConsumer:
    """One member. `assignment` is what it may read, `target_assignment` what it is to read in the end.
    `member_type`: 0 for a member of the classic protocol, 1 for one of the consumer protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Int8 = wire("1+", default=-1, ignorable=True)


@struct
class DescribedConsumerGroup:
    error_code: Int16
    error_message: str | None = None
    group_id: str
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[DescribedConsumer]
    authorized_operations: Int32 = -2147483648


@struct
class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedConsumerGroup]


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    group_ids: list[str]
    include_authorized_operations: bool
