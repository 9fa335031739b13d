"""AlterReplicaLogDirs (key 34): choose the log directories of this broker's replicas (KIP-113).

A partition that has no replica here yet gets its log in the chosen directory when it is assigned to this
broker; as in Kafka it is answered REPLICA_NOT_AVAILABLE, and a tool asks again once the replica is there. A
replica that is in another directory begins to move, which DescribeLogDirs shows. One that is in the directory
already stays, even if it was about to move elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.log_moves import LogMoves
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


@dataclass(eq=False)
class AlterReplicaLogDirsHandler(Handler[AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse]):
    request = AlterReplicaLogDirsRequest
    logs: LogManager
    moves: LogMoves
    rights: ClusterRights

    def handle(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        self.rights.check(context, "alter log directories")
        named = _named(request)
        if len({partition for partition, _ in named}) != len(named):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names a partition more than once")
        errors = {partition: self._choose(partition, path) for partition, path in named}
        chosen = [f"{partition}: {path}" for partition, path in named if _is_chosen(errors[partition])]
        if chosen:
            log_change(context, "Chose the log directories of %d replicas: %s", len(chosen), shown(chosen))
        return _response(errors)

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
        return _response({partition: error.code for partition, _ in _named(request)})


def _named(request: AlterReplicaLogDirsRequest) -> list[tuple[TopicPartition, str]]:
    return [
        (TopicPartition(topic.name, index), directory.path)
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    ]


def _is_chosen(error: ErrorCode) -> bool:
    return error in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)


def _response(errors: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), error in errors.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=list(topics.values()))
