"""DescribeLogDirs (key 35): the log directories of this broker, and the size of each partition in them
(KIP-113). A replica that moves to another directory is there too, as a future one.

Versions: from 4 on with the total and the free bytes of the file system (KIP-827).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.log_moves import LogMove, LogMoves
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_PARTITION_BYTES = 24


@dataclass(eq=False)
class DescribeLogDirsHandler(Handler[DescribeLogDirsRequest, DescribeLogDirsResponse]):
    request = DescribeLogDirsRequest
    logs: LogManager
    replicas: Replicas
    moves: LogMoves
    disk: Disk
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: DescribeLogDirsRequest
    ) -> Deferred[DescribeLogDirsResponse]:
        context.check(AclOperation.DESCRIBE, AclResource.CLUSTER)
        wanted = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        return ensureDeferred(self._answer(context, wanted))

    async def _answer(
        self, context: RequestContext, wanted: set[tuple[str, int]] | None
    ) -> DescribeLogDirsResponse:
        with self.answers.begin(context, DescribeLogDirsResponse) as answer:
            results = answer.rows(DescribeLogDirsResult)
            for directory in self.logs.directories:
                results.add(await self._directory(answer, directory, wanted))
            return DescribeLogDirsResponse(throttle_time_ms=0, results=results.finish())

    async def _directory(
        self, answer: LongAnswer, directory: LogDirectory, wanted: set[tuple[str, int]] | None
    ) -> DescribeLogDirsResult:
        if directory.failure is not None:
            return DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]
            )
        found: list[tuple[TopicPartition, Log | LogMove]] = [*directory.logs.items()]
        found += [(move.partition, move) for move in self.moves if move.target is directory]
        logs = [entry for entry in found if wanted is None or tuple(entry[0]) in wanted]
        logs.sort(key=lambda entry: entry[0])
        topics = answer.rows(DescribeLogDirsTopic)
        for name, of_topic in groupby(logs, key=lambda entry: entry[0].topic):
            await answer.turn(len(name))
            partitions = answer.rows(DescribeLogDirsPartition)
            for _, log in of_topic:
                if not await answer.afford(_PARTITION_BYTES):
                    raise answer.too_long
                partitions.add(_future(log) if isinstance(log, LogMove) else self._partition(log))
            topics.add(DescribeLogDirsTopic(name=name, partitions=partitions.finish()))
        return DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=directory.path,
            topics=topics.finish(),
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


def _future(move: LogMove) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=move.partition.partition,
        partition_size=move.copied_bytes,
        offset_lag=move.offset_lag,
        is_future_key=True,
    )
