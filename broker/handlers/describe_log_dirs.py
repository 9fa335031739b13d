"""DescribeLogDirs (key 35): the log directories of this broker, and the size of each partition in them
(KIP-113).

Versions: from 4 on with the total and the free bytes of the file system (KIP-827).
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@dataclass(eq=False)
class DescribeLogDirsHandler(Handler[DescribeLogDirsRequest, DescribeLogDirsResponse]):
    request = DescribeLogDirsRequest
    logs: LogManager
    replicas: Replicas
    disk: Disk

    def handle(self, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        wanted = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        results = [self._directory(directory, wanted) for directory in self.logs.directories]
        return DescribeLogDirsResponse(throttle_time_ms=0, results=results)

    def _directory(
        self, directory: LogDirectory, wanted: set[tuple[str, int]] | None
    ) -> DescribeLogDirsResult:
        if directory.failure is not None:
            return DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]
            )
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for at, log in sorted(directory.logs.items()):
            if wanted is None or tuple(at) in wanted:
                topics.setdefault(at.topic, []).append(self._partition(log))
        return DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=directory.path,
            topics=[
                DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
            ],
            total_bytes=self.disk.total_bytes(directory.path),
            usable_bytes=self.disk.free_bytes(directory.path),
        )

    def _partition(self, log: Log) -> DescribeLogDirsPartition:
        topic, index = log.topic_partition
        partition = self.replicas.find(topic, index)
        high_watermark = log.log_end_offset if partition is None else partition.high_watermark
        return DescribeLogDirsPartition(
            partition_index=index,
            partition_size=log.size_bytes,
            offset_lag=max(0, high_watermark - log.log_end_offset),
            is_future_key=False,
        )

    def failed(
        self, context: RequestContext, request: DescribeLogDirsRequest, error: BrokerError
    ) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=error.code, results=[])
