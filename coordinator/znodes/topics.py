"""/brokers/topics/T: the replicas of each partition; …/partitions/P/state: its leader and in-sync set."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.json_values import (
    WRONG_SHAPE,
    BadZnode,
    decode_json,
    decode_uuid,
    encode_json,
    encode_uuid,
    int32,
    int32_list,
)

TOPICS = "/brokers/topics"

NO_LEADER = -1


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{partitions_path(topic)}/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/state"


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic: its id (None if written before topics had ids) and the replicas of each partition."""

    topic_id: uuid.UUID | None
    partitions: Mapping[int, ReplicaAssignment]


def encode_topic(topic: TopicAssignment) -> bytes:
    """Encode version 3."""
    partitions = sorted(topic.partitions.items())
    value: dict[str, Any] = {
        "version": 3,
        "partitions": {str(number): list(assignment.replicas) for number, assignment in partitions},
        "adding_replicas": {
            str(number): list(assignment.adding) for number, assignment in partitions if assignment.adding
        },
        "removing_replicas": {
            str(number): list(assignment.removing) for number, assignment in partitions if assignment.removing
        },
    }
    if topic.topic_id is not None:
        value["topic_id"] = encode_uuid(topic.topic_id)
    return encode_json(value)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Decode any version. Raises `BadZnode`."""
    path = topic_path(topic)
    value = decode_json(path, data)
    try:
        adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
        return TopicAssignment(
            decode_uuid(value["topic_id"]) if value.get("topic_id") else None,
            {
                _partition_number(number): ReplicaAssignment(
                    _replicas(replicas),
                    int32_list(adding.get(number, [])),
                    int32_list(removing.get(number, [])),
                )
                for number, replicas in value["partitions"].items()
            },
        )
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not describe a topic: {error!r}") from None


def _partition_number(value: Any) -> int:
    number = int32(value)
    if number < 0:
        raise ValueError(f"there is no partition {number}")
    return number


def _replicas(value: Any) -> tuple[int, ...]:
    replicas = int32_list(value)
    if not replicas:
        raise ValueError("a partition has no replicas")
    return replicas


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader, leader epoch and in-sync replicas; `controller_epoch` is that of the controller that wrote it.

    `eligible` are replicas that are not in sync but have every committed record (KIP-966's eligible leader
    replicas): see `coordinator.controller.eligible`. The partition epoch in AlterPartition is the znode's
    version, so the data does not contain it.

    Only a partition without a leader has a `last_known_leader`, its last one. `unclean` are replicas that had
    every committed record, and may have lost some since: their disk has failed, or they have restarted after
    the partition lost its leader. If no other member is left, `isr` still names the last of them, though they
    are not trusted: see `coordinator.controller.recovery`.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    eligible: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    unclean: tuple[int, ...] = ()

    @property
    def trusted_isr(self) -> tuple[int, ...]:
        """The in-sync replicas that have every committed record."""
        if not self.unclean:
            return self.isr
        return tuple(member for member in self.isr if member not in self.unclean)

    @property
    def members(self) -> tuple[int, ...]:
        """The replicas among which one has every committed record that is left."""
        return tuple(dict.fromkeys((*self.isr, *self.eligible, *self.unclean)))


def encode_partition_state(state: PartitionState) -> bytes:
    """Encode version 1. `eligible_leader_replicas`, `last_known_leader` and `unclean_replicas` are Holdfast's
    own fields, left out if they are empty; Kafka's decoders skip unknown fields."""
    # Formatted by hand for speed: a failover may write ten thousand of these before partitions lead again.
    isr = ",".join(map(str, state.isr))
    own = ""
    if state.eligible:
        own = f',"eligible_leader_replicas":[{",".join(map(str, state.eligible))}]'
    if state.last_known_leader != NO_LEADER:
        own += f',"last_known_leader":{state.last_known_leader}'
    if state.unclean:
        own += f',"unclean_replicas":[{",".join(map(str, state.unclean))}]'
    return (
        f'{{"version":1,"leader":{state.leader},"leader_epoch":{state.leader_epoch},"isr":[{isr}],'
        f'"controller_epoch":{state.controller_epoch}{own}}}'
    ).encode()


def decode_partition_state(topic: str, partition: int, data: bytes) -> PartitionState:
    path = partition_state_path(topic, partition)
    value = decode_json(path, data)
    try:
        return PartitionState(
            int32(value["leader"]),
            int32(value["leader_epoch"]),
            int32_list(value["isr"]),
            int32(value["controller_epoch"]),
            int32_list(value.get("eligible_leader_replicas", [])),
            int32(value.get("last_known_leader", NO_LEADER)),
            int32_list(value.get("unclean_replicas", [])),
        )
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not hold a partition's state: {error!r}") from None
