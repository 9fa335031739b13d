"""The replicas that a throttle lists: present replicas as leaders, added replicas as followers."""

from __future__ import annotations

from holdfast_log.clients.tools.replication_throttle import throttled_replicas
from holdfast_log.protocol.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_present_replicas_are_throttled_as_leaders_and_added_ones_as_followers() -> None:
    current = {A0: (1, 2), A1: (2, 3), B0: (3, 1)}
    targets = {A1: (2, 4), A0: (3, 4), B0: (1,)}
    assert throttled_replicas(current, targets) == {"a": ("0:1,0:2,1:2,1:3", "0:3,0:4,1:4")}
