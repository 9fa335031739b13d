"""How many partitions clients may create: per request, per topic, and per broker. Pure.

Everything about a topic's partitions is in one znode, and the controller, every broker and every client keep
all partitions in memory. Without limits one request could make a cluster unusable.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.protocol.errors import BrokerError, ErrorCode

ZNODE_BYTES_MAX = 900_000
"""Maximum size of a topic's znode. A write also has other znodes in it; ZooKeeper takes 1 MB altogether."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """`request.partitions.max`, `topic.partitions.max` and, counting replicas, `broker.partitions.max`."""

    per_request: int = 5_000
    per_topic: int = 10_000
    per_broker: int = 10_000


class PartitionBudget:
    """What one request may still create in a cluster that has `replicas` on `brokers` live brokers."""

    def __init__(self, limits: PartitionLimits, replicas: int, brokers: int) -> None:
        self._limits = limits
        self._replicas = replicas
        self._brokers = brokers
        self._left = limits.per_request

    def check(self, new: int, total: int) -> None:
        """Raise BrokerError if a topic may not get `new` partitions, and so have `total`."""
        limits = self._limits
        if total > limits.per_topic:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic has 1 to {limits.per_topic} partitions, not {total} (topic.partitions.max)",
            )
        if new > self._left:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"one request creates at most {limits.per_request} partitions (request.partitions.max). Send "
                "the rest in further requests",
            )

    def take(self, new: int, replicas: int) -> None:
        """Count `new` partitions with `replicas` in all. Raises BrokerError if the brokers have no room."""
        room = self._limits.per_broker * self._brokers
        if self._replicas + replicas > room:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"the cluster has {self._replicas} replicas of partitions, and its {self._brokers} brokers "
                f"may have {room} (broker.partitions.max): delete topics, add brokers, or raise the limit",
            )
        self._left -= new
        self._replicas += replicas


def check_znode_size(topic: str, data: bytes) -> None:
    """Raise BrokerError if a topic's znode would be larger than ZooKeeper takes."""
    if len(data) > ZNODE_BYTES_MAX:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"the description of topic {topic!r} in ZooKeeper would have {len(data)} bytes, more than the "
            f"{ZNODE_BYTES_MAX} that it can have: ask for fewer partitions or replicas, or shorter configs",
        )
