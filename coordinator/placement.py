"""Where partitions are kept: which brokers hold the replicas of a new partition. Pure.

The first replica of a partition is its preferred leader. Leadership goes round the brokers; the followers of
successive partitions are shifted, so that the load of a broker that fails is spread over all others. Where
every broker names its rack, brokers are first put in an order that changes rack at every step, and the
replicas of a partition go to as many racks as there are (KIP-36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that keep a partition, the preferred leader first.

    While a reassignment runs, `replicas` holds the target and what is still to be removed; `adding` and
    `removing` say which of them are on their way in and out.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once the reassignment is over."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas as they were before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """The assignment while replicas move from where they were to `target`."""
        original = self.original
        return ReplicaAssignment(
            replicas=(*target, *(replica for replica in original if replica not in target)),
            adding=tuple(replica for replica in target if replica not in original),
            removing=tuple(replica for replica in original if replica not in target),
        )


class PlacementError(ValueError):
    """The replicas cannot be placed; the message says why."""


def place(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int = 0,
    first_partition: int = 0,
) -> list[ReplicaAssignment]:
    """The assignments of `partition_count` new partitions, numbered from `first_partition` on.

    `brokers` maps each live broker to its rack, None where it has none. `start` chooses the broker that leads
    the first partition: the caller passes something that differs from topic to topic.

    Raises `PlacementError` where there are fewer brokers than replicas.
    """
    if replication_factor > len(brokers):
        raise PlacementError(
            f"{replication_factor} replicas need as many brokers, and {len(brokers)} are available"
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
    """The brokers in an order that takes one from each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(brokers.items()):
        by_rack.setdefault(rack or "", []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns))
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _replicas(
    order: Sequence[int], rack_of: Mapping[int, str | None], count: int, start: int, number: int
) -> tuple[int, ...]:
    """One partition's replicas: the leader, then followers in a rotation that changes once a round."""
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
