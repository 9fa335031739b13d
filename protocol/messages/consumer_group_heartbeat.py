"""ConsumerGroupHeartbeat: join a consumer group, stay in it, and leave it (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class HeartbeatTopicPartitions:
    """Some partitions of one topic."""

    topic_id: UUID
    partitions: list[Int32]


@struct
class HeartbeatAssignment:
    """The partitions that a member may read at once."""

    topic_partitions: list[HeartbeatTopicPartitions]


@struct
class ConsumerGroupHeartbeatResponse(Response):
    """`assignment` is null if it has not changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """A member epoch of 0 joins, -1 leaves, and -2 says that a static member will come back. Fields that are
    null, or -1, have not changed since the last heartbeat. From version 1 on members choose their ids
    (KIP-1082) and may subscribe by a regular expression."""

    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = wire("1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[HeartbeatTopicPartitions] | None = None
