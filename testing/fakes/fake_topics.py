"""Topics are created, grown and deleted in a fake cluster, as the controller's answers say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_log.protocol.api import Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast_log.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_cluster import FakeCluster

VERSIONS = {19: (2, 7), 20: (1, 6), 37: (0, 3)}


def respond(
    cluster: FakeCluster,
    request: CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest,
    error: ErrorCode,
) -> Response:
    """Carry out a request, unless it is to fail with `error`. Replicas and configurations are ignored."""
    match request:
        case CreateTopicsRequest(topics=topics):
            return CreateTopicsResponse(
                throttle_time_ms=0,
                topics=[
                    CreatableTopicResult(
                        name=topic.name, error_code=error or _create(cluster, topic, request.validate_only)
                    )
                    for topic in topics
                ],
            )
        case CreatePartitionsRequest(topics=rows):
            return CreatePartitionsResponse(
                throttle_time_ms=0,
                results=[
                    CreatePartitionsTopicResult(
                        name=row.name,
                        error_code=error or _grow(cluster, row.name, row.count, request.validate_only),
                        error_message=None,
                    )
                    for row in rows
                ],
            )
        case DeleteTopicsRequest():
            names = request.topic_names or [_name(cluster, row.name, row.topic_id) for row in request.topics]
            return DeleteTopicsResponse(
                throttle_time_ms=0,
                responses=[
                    DeletableTopicResult(name=name, error_code=error or _delete(cluster, name))
                    for name in names
                ],
            )


def _create(cluster: FakeCluster, topic: CreatableTopic, is_trial: bool) -> ErrorCode:
    if topic.name in cluster.topics:
        return ErrorCode.TOPIC_ALREADY_EXISTS
    if topic.num_partitions == 0 or topic.num_partitions < -1:
        return ErrorCode.INVALID_PARTITIONS
    if not is_trial:
        cluster.create_topic(topic.name, len(topic.assignments) or max(1, topic.num_partitions))
    return ErrorCode.NONE


def _grow(cluster: FakeCluster, name: str, count: int, is_trial: bool) -> ErrorCode:
    partitions = cluster.topics.get(name)
    if partitions is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if count <= len(partitions):
        return ErrorCode.INVALID_PARTITIONS
    if not is_trial:
        cluster.grow_topic(name, count)
    return ErrorCode.NONE


def _delete(cluster: FakeCluster, name: str) -> ErrorCode:
    if name not in cluster.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.delete_topic(name)
    return ErrorCode.NONE


def _name(cluster: FakeCluster, name: str | None, topic_id: object) -> str:
    return name or next((each for each, known in cluster.topic_ids.items() if known == topic_id), "")
