"""GetReplicaLogInfo: the controller asks a broker where the logs of its replicas end (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct

REPLICA_LOG_INFO_MAX = 1000
"""The most partitions that one response describes."""


@struct
class ReplicaLogInfo:
    """The end of one replica's log. `last_written_leader_epoch` is the leader epoch of its last batch, -1 if
    it has none; `current_leader_epoch` is the newest that the broker knows."""

    partition: Int32
    last_written_leader_epoch: Int32 = -1
    current_leader_epoch: Int32 = -1
    log_end_offset: Int64 = -1
    error_code: Int16


@struct
class TopicReplicaLogInfo:
    topic_id: UUID
    partition_log_info: list[ReplicaLogInfo]


@struct
class GetReplicaLogInfoResponse(Response):
    """`broker_epoch` is that of the answering broker's registration. `truncated`: the request named more
    than `REPLICA_LOG_INFO_MAX` partitions, and the response describes only the first ones."""

    throttle_time_ms: Int32 = 0
    broker_epoch: Int64
    truncated: bool = False
    topic_partition_log_info_list: list[TopicReplicaLogInfo]


@struct
class AskedReplicas:
    topic_id: UUID
    partitions: list[Int32]


@request(key=93, versions="0", flexible="0+", internal=True)
class GetReplicaLogInfoRequest(Request[GetReplicaLogInfoResponse]):
    topic_partitions: list[AskedReplicas] | None
