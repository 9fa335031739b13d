"""Replication throttles (KIP-73): limit the bandwidth for replicas that are catching up.

A broker has one throttle as a leader, for bytes it sends, and one as a follower, for bytes it fetches. Each
has a rate (`leader.replication.throttled.rate`, `follower.replication.throttled.rate`); topics list the
replicas that it applies to (`….throttled.replicas`). Replicas in sync are never throttled: producers wait for
them.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.rate import Rate

UNLIMITED = 2**63 - 1
"""Rate that means no limit."""
EVERY_REPLICA = "*"


class Throttle:
    """Limits a byte rate. `names` takes the list of throttled replicas from a topic's settings: `*`, or
    `partition:broker` each."""

    def __init__(self, local_id: int, names: Callable[[LogSettings], tuple[str, ...]]) -> None:
        self._local_id = local_id
        self._names = names
        self._bytes_per_s = UNLIMITED
        self._rate = Rate()

    def set_rate(self, bytes_per_s: int) -> None:
        """Change the rate. It applies at once."""
        self._bytes_per_s = bytes_per_s

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self._bytes_per_s < UNLIMITED

    def is_over(self, now_ms: int) -> bool:
        """Whether more bytes were copied than the rate allows."""
        return self.is_set and self._rate.per_second(now_ms) > self._bytes_per_s

    def covers(self, partition: Partition) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        if not self.is_set:
            return False
        names = self._names(partition.log.settings)
        return EVERY_REPLICA in names or f"{partition.index}:{self._local_id}" in names

    def record(self, partition: Partition, size: int, now_ms: int) -> None:
        """Count bytes copied of a partition, if its replica is throttled."""
        if size and self.covers(partition):
            self._rate.record(size, now_ms)


def leader_throttle(local_id: int) -> Throttle:
    """The throttle of records that a leader sends to followers."""
    return Throttle(local_id, lambda settings: settings.leader_replication_throttled_replicas)


def follower_throttle(local_id: int) -> Throttle:
    """The throttle of records that a follower fetches from leaders."""
    return Throttle(local_id, lambda settings: settings.follower_replication_throttled_replicas)
