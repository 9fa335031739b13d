"""AlterReplicaLogDirs: choose the log directories of a broker's replicas (KIP-113)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


@struct
class AlterReplicaLogDirsResponse(Response):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]


@struct
class AlterReplicaLogDirTopic:
    name: str
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    """`path` is absolute, one of the broker's `log.dirs`."""

    path: str
    topics: list[AlterReplicaLogDirTopic]


@request(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    dirs: list[AlterReplicaLogDir]
