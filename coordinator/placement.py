"""Replica placement: chooses the brokers for the replicas of new partitions. Pure.

The first replica of a partition is its preferred leader. Leaders rotate over the brokers; followers of
successive partitions are shifted, so that the load of a failed broker spreads over all others. If every
broker has a rack, brokers are ordered so that neighbours have different racks, and the replicas of a
partition are spread over as many racks as possible (KIP-36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that have replicas of a partition, the preferred leader first.

    During a reassignment `replicas` has the target followed by the replicas that will be removed; `adding`
    and `removing` are the replicas that join and leave.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """The assignment while replicas move from the original brokers to `target`."""
        original = self.original
        return ReplicaAssignment(
            replicas=(*target, *(replica for replica in original if replica not in target)),
            adding=tuple(replica for replica in target if replica not in original),
            removing=tuple(replica for replica in original if replica not in target),
        )


class PlacementError(ValueError):
    """The replicas cannot be placed; the message gives the reason."""


def place(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int = 0,
    first_partition: int = 0,
) -> list[ReplicaAssignment]:
    """The assignments of `partition_count` new partitions, numbered from `first_partition` on.

    `brokers` maps each live broker to its rack or None. `start` selects the broker that leads the first
    partition; callers vary it from topic to topic.

    Raises `PlacementError` if there are fewer brokers than replicas.
    """
    if replication_factor > len(brokers):
        raise PlacementError(
            f"{replication_factor} replicas need as many brokers, but {len(brokers)} are available"
        )
    racks = list(brokers.values())
    if None in racks or len(set(racks)) == 1:
        order = sorted(brokers)
        rack_of: dict[int, str | None] = dict.fromkeys(order)
    else:
        order = _alternate_racks(brokers)
        rack_of = dict(brokers)
    return [
        ReplicaAssignment(_replicas(order, rack_of, replication_factor, start, number))
        for number in range(first_partition, first_partition + partition_count)
    ]


def _alternate_racks(brokers: Mapping[int, str | None]) -> list[int]:
    """The brokers, one from each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(brokers.items()):
        by_rack.setdefault(rack or "", []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns))
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _replicas(
    order: Sequence[int], rack_of: Mapping[int, str | None], count: int, start: int, number: int
) -> tuple[int, ...]:
    """One partition's replicas: the leader, then followers, whose shift grows with each rotation of
    leaders."""
    size = len(order)
    leader = order[(start + number) % size]
    others = [order[(start + number + step) % size] for step in range(1, size)]
    shift = (number // size) % len(others) if others else 0
    candidates = others[shift:] + others[:shift]
    replicas = [leader]
    if any(rack is not None for rack in rack_of.values()):
        used = [rack_of[leader]]
        for broker in candidates:
            if len(replicas) < count and rack_of[broker] not in used:
                replicas.append(broker)
                used.append(rack_of[broker])
    replicas.extend([broker for broker in candidates if broker not in replicas][: count - len(replicas)])
    return tuple(replicas)
