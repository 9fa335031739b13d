"""DescribeLogDirs: the replicas in a broker's log directories (KIP-113, KIP-827)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class DescribeLogDirsPartition:
    """`partition_size` is in bytes. `offset_lag` is the number of offsets that the log is behind the high
    watermark, or, for a log that is being moved here (`is_future_key`), behind the present log.
    """

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool


@struct
class DescribeLogDirsTopic:
    name: str
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = wire("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = wire("4+", default=-1, ignorable=True)


@struct
class DescribeLogDirsResponse(Response):
    throttle_time_ms: Int32
    error_code: Int16 = wire("3+", ignorable=True)
    results: list[DescribeLogDirsResult]


@struct
class DescribableLogDirTopic:
    topic: str
    partitions: list[Int32]


@request(key=35, versions="0-4", flexible="2+")
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """If `topics` is null, all topics are described."""

    topics: list[DescribableLogDirTopic] | None
