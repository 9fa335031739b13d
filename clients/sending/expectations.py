"""The condition of a message that expects an offset (KIP-27)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

NO_ATTEMPT = -1
ANY_EPOCH = -1
NO_GUARDS: Mapping[TopicPartition, int] = {}
"""No condition on other partitions. Must not be changed."""


@dataclass(slots=True)
class Guard:
    """A partition whose log must end at `expected_offset`, though nothing is written to it.

    `topic_id` is the id of the topic that is meant, ZERO_UUID until it is first sent. `attempt` is the one
    with which it was last sent (`clients.sending.queues.PartitionQueue.attempt`).
    `elsewhere_since` is the count of metadata updates at which it was first seen to have another leader than
    the batch's partition; -1 while the leader is the same.
    """

    partition: TopicPartition
    expected_offset: int
    attempt: int = NO_ATTEMPT
    elsewhere_since: int = -1
    topic_id: UUID = ZERO_UUID


class Expectation(NamedTuple):
    """The offset at which a log must end, the leader epoch of its last record, guards, the id by which a
    broker recognises the append if it is repeated (empty: none), the id of the topic that is meant
    (ZERO_UUID: the topic that has the name when the message is first sent), and an offset before which the
    log has no append with the id."""

    offset: int
    last_leader_epoch: int = ANY_EPOCH
    guards: tuple[Guard, ...] = ()
    append_id: bytes = b""
    topic_id: UUID = ZERO_UUID
    id_unused_before: int = 0


class KeyExpectation(NamedTuple):
    """The offset at which the last record with a key must be, and the id of the topic that is meant
    (ZERO_UUID: the topic that has the name when the message is first sent)."""

    version: int
    topic_id: UUID = ZERO_UUID


def guards_in(partition: TopicPartition, expected: Mapping[TopicPartition, int]) -> tuple[Guard, ...]:
    """The guards of a write to `partition`, in order. Raises ValueError for an invalid one."""
    guards = tuple(Guard(TopicPartition(*key), expected[key]) for key in sorted(expected))
    for guard in guards:
        if guard.partition == partition:
            raise ValueError(
                f"{partition} is written to and cannot be a guard: its condition is the message's offset"
            )
        if guard.expected_offset < 0:
            raise ValueError(f"the guard {guard.partition}: no log ends at offset {guard.expected_offset}")
    return guards
