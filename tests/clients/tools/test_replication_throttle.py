"""Which replicas a throttle is for: those that give and those that come."""

from __future__ import annotations

from clients.tools.replication_throttle import throttled_replicas
from protocol.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_all_that_are_there_give_and_all_that_come_fetch() -> None:
    current = {A0: (1, 2), A1: (2, 3), B0: (3, 1)}
    targets = {A1: (2, 4), A0: (3, 4), B0: (1,)}
    assert throttled_replicas(current, targets) == {"a": ("0:1,0:2,1:2,1:3", "0:3,0:4,1:4")}
