"""/admin/…: requests that older tools write to ZooKeeper for the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json
from holdfast_log.protocol.topic_partition import TopicPartition

DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def encode_reassignment(replicas: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    return encode_json(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": partition, "replicas": list(target)}
                for (topic, partition), target in sorted(replicas.items())
            ],
        }
    )


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    value = decode_json(REASSIGN_PARTITIONS, data)
    try:
        return {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): tuple(map(int, entry["replicas"]))
            for entry in value["partitions"]
        }
    except WRONG_SHAPE as error:
        raise BadZnode(f"{REASSIGN_PARTITIONS} does not hold a reassignment: {error!r}") from None


def encode_preferred_election(partitions: Sequence[TopicPartition]) -> bytes:
    return encode_json(
        {
            "version": 1,
            "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
        }
    )


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    value = decode_json(PREFERRED_REPLICA_ELECTION, data)
    try:
        return [TopicPartition(str(entry["topic"]), int(entry["partition"])) for entry in value["partitions"]]
    except WRONG_SHAPE as error:
        raise BadZnode(f"{PREFERRED_REPLICA_ELECTION} does not list partitions: {error!r}") from None
