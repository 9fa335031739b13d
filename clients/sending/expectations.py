"""What a message that is to land at an offset rests on (KIP-27)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from protocol.topic_partition import TopicPartition

NO_ATTEMPT = -1
ANY_EPOCH = -1
NO_GUARDS: Mapping[TopicPartition, int] = {}
"""Of what rests on its own partition alone. Nobody changes it."""


@dataclass(slots=True)
class Guard:
    """A partition whose log has to end at `expected_offset`, though nothing is written to it.

    `attempt` is under which it was last sent: see `clients.sending.queues.PartitionQueue.attempt`.
    `elsewhere_since` counts the updates of metadata up to that in which another broker than the batch's led
    it; -1: the same.
    """

    partition: TopicPartition
    expected_offset: int
    attempt: int = NO_ATTEMPT
    elsewhere_since: int = -1


class Expectation(NamedTuple):
    """Where a log has to end, the leader epoch that its last record has to have, and guards."""

    offset: int
    last_leader_epoch: int = ANY_EPOCH
    guards: tuple[Guard, ...] = ()


def guards_in(partition: TopicPartition, expected: Mapping[TopicPartition, int]) -> tuple[Guard, ...]:
    """The guards of what is written to `partition`, in order. Raises ValueError for one that is none."""
    guards = tuple(Guard(TopicPartition(*key), expected[key]) for key in sorted(expected))
    for guard in guards:
        if guard.partition == partition:
            raise ValueError(f"{partition} is written to: where it ends says the message's own offset")
        if guard.expected_offset < 0:
            raise ValueError(f"no log ends at offset {guard.expected_offset}, not {guard.partition} either")
    return guards
