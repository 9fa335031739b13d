"""What operators and older tools ask of the controller (/admin/…), and what brokers tell it
(/log_dir_event_notification)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.znodes.json import WRONG_SHAPE, BadZnode, decode_json, encode_json
from coordinator.znodes.paths import PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS
from protocol.topic_partition import TopicPartition

_LOG_DIR_FAILED = 1


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


def encode_log_dir_event(broker_id: int) -> bytes:
    return encode_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker that has lost a log directory."""
    try:
        return int(decode_json(path, data)["broker"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not name a broker: {error!r}") from None
