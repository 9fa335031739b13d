"""AlterReplicaLogDirs (key 34): choose the log directories of this broker's replicas (KIP-113).

A partition that has no replica here yet gets its log in the chosen directory when it is assigned to this
broker; as in Kafka it is answered REPLICA_NOT_AVAILABLE, and a tool asks again once the replica is there. A
replica that is in another directory begins to move, which DescribeLogDirs shows. One that is in the directory
already stays, even if it was about to move elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.log_moves import LogMoves
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import log_change, shown
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.controller.topic_rules import is_legal_name
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_NAMED_PER_STEP = 200
_NAMED_BYTES = 16
"""The price of a partition that is named, in bytes of an answer: it takes a microsecond."""
_SHOWN_MAX = 100
"""Maximum number of replicas in the line of the log, which is shorter."""


@dataclass(eq=False)
class AlterReplicaLogDirsHandler(Handler[AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse]):
    request = AlterReplicaLogDirsRequest
    logs: LogManager
    moves: LogMoves
    rights: ClusterRights
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> Deferred[AlterReplicaLogDirsResponse]:
        return ensureDeferred(self._answer(context, request))

    async def _answer(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        """Look for partitions that are named twice, choose, and answer, each in turns."""
        with self.answers.begin(context, AlterReplicaLogDirsResponse) as answer:
            refused = self.rights.refusal(context, "alter log directories")
            refusal = None if refused is None else refused.code
            paths, are_different = await _paths(answer, request)
            if refusal is None and not are_different:
                refusal = ErrorCode.INVALID_REQUEST
            errors: dict[str, dict[int, ErrorCode]] = {}
            count, first = 0, list[str]()
            for partition, path in paths.items():
                # A choice that was made is logged, so that after the first one all are.
                await answer.turn(0, even_if_gone=count > 0)
                code = self._choose(partition, path) if refusal is None else refusal
                errors.setdefault(partition.topic, {})[partition.partition] = code
                if code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                    count += 1
                    if count <= _SHOWN_MAX:
                        first.append(f"{partition}: {path}")
            if count:
                log_change(context, "Chose the log directories of %d replicas: %s", count, shown(first))
            topics = answer.rows(AlterReplicaLogDirTopicResult)
            for name, codes in errors.items():
                partitions = answer.rows(AlterReplicaLogDirPartitionResult)
                for index, code in codes.items():
                    await answer.turn(0)
                    partitions.add(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                topics.add(AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions.finish()))
            return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=topics.finish())

    def _choose(self, partition: TopicPartition, path: str) -> ErrorCode:
        if not is_legal_name(partition.topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        directory = self._directory(path)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition in directory.logs:
            self.moves.cancel(partition)
            return ErrorCode.NONE
        if self.logs.find(partition) is not None:
            self.moves.begin(partition, directory)
            return ErrorCode.NONE
        self.logs.choices.choose(partition, directory)
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def _directory(self, path: str) -> LogDirectory | None:
        return next((each for each in self.logs.directories if each.path == path), None)

    def failed(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest, error: BrokerError
    ) -> AlterReplicaLogDirsResponse:
        indexes: dict[str, dict[int, None]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
        results = [
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in found
                ],
            )
            for name, found in indexes.items()
        ]
        return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)


async def _paths(
    answer: LongAnswer, request: AlterReplicaLogDirsRequest
) -> tuple[dict[TopicPartition, str], bool]:
    """The paths by partition, and whether the request names each partition once."""
    paths: dict[TopicPartition, str] = {}
    count = 0
    for directory in request.dirs:
        for topic in directory.topics:
            await answer.turn(0)
            for start in range(0, len(topic.partitions), _NAMED_PER_STEP):
                step = topic.partitions[start : start + _NAMED_PER_STEP]
                await answer.turn(len(step) * _NAMED_BYTES)
                count += len(step)
                paths |= dict.fromkeys((TopicPartition(topic.name, index) for index in step), directory.path)
    return paths, len(paths) == count
