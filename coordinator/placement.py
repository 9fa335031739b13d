"""Replica placement: chooses the brokers for the replicas of new partitions. Pure.

The first replica of a partition is its preferred leader. Leaders rotate over the brokers; followers of
successive partitions are shifted, so that the load of a failed broker spreads over all others. If every
broker has a rack, brokers are ordered so that neighbours have different racks, and the replicas of a
partition are spread over as many racks as possible (KIP-36). Brokers that are processes of one machine
(`broker.processes`) never have replicas of the same partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Site(NamedTuple):
    """Where a broker runs. A broker that names no machine has one of its own."""

    rack: str | None = None
    machine: str | None = None


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


def machine_count(brokers: Mapping[int, Site]) -> int:
    """The number of machines of these brokers: the largest possible number of replicas of a partition."""
    return len({_machine(broker, site) for broker, site in brokers.items()})


def sharing_a_machine(replicas: Iterable[int], brokers: Mapping[int, Site]) -> tuple[int, int] | None:
    """The first two of the replicas whose brokers are processes of one machine; None if no two are."""
    found: dict[int | str, int] = {}
    for broker in replicas:
        other = found.setdefault(_machine(broker, brokers.get(broker, Site())), broker)
        if other != broker:
            return other, broker
    return None


def _machine(broker: int, site: Site) -> int | str:
    return broker if site.machine is None else site.machine


def place(
    brokers: Mapping[int, Site],
    partition_count: int,
    replication_factor: int,
    *,
    start: int = 0,
    first_partition: int = 0,
) -> list[ReplicaAssignment]:
    """The assignments of `partition_count` new partitions, numbered from `first_partition` on.

    `brokers` has each live broker. `start` selects the broker that leads the first partition; callers vary
    it from topic to topic.

    Raises `PlacementError` if there are fewer machines than replicas.
    """
    machines = machine_count(brokers)
    if replication_factor > machines:
        kind = "brokers" if machines == len(brokers) else "machines"
        raise PlacementError(
            f"{replication_factor} replicas need as many {kind}, but {machines} are available"
        )
    racks = [site.rack for site in brokers.values()]
    has_racks = None not in racks and len(set(racks)) > 1
    rack_of = {broker: site.rack if has_racks else None for broker, site in brokers.items()}
    machine_of = {broker: _machine(broker, site) for broker, site in brokers.items()}
    order = _alternating(brokers, rack_of, machine_of)
    return [
        ReplicaAssignment(_replicas(order, rack_of, machine_of, replication_factor, start, number))
        for number in range(first_partition, first_partition + partition_count)
    ]


def _alternating(
    brokers: Iterable[int], rack_of: Mapping[int, str | None], machine_of: Mapping[int, int | str]
) -> list[int]:
    """The brokers, one from each rack in turn, and within a rack one from each machine in turn."""
    by_rack: dict[str, dict[int | str, list[int]]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(rack_of[broker] or "", {}).setdefault(machine_of[broker], []).append(broker)
    return _in_turn([_in_turn(list(by_rack[rack].values())) for rack in sorted(by_rack)])


def _in_turn(columns: Sequence[Sequence[int]]) -> list[int]:
    """One broker of each column in turn, as long as it has any."""
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _replicas(
    order: Sequence[int],
    rack_of: Mapping[int, str | None],
    machine_of: Mapping[int, int | str],
    count: int,
    start: int,
    number: int,
) -> tuple[int, ...]:
    """One partition's replicas: the leader, then followers, whose shift grows with each rotation of
    leaders."""
    size = len(order)
    leader = order[(start + number) % size]
    others = [order[(start + number + step) % size] for step in range(1, size)]
    shift = (number // size) % len(others) if others else 0
    candidates = others[shift:] + others[:shift]
    replicas, racks, machines = [leader], {rack_of[leader]}, {machine_of[leader]}
    # First on racks that the partition does not have, then on any machine that it does not have.
    for wants_new_rack in (True, False):
        for broker in candidates:
            if len(replicas) == count:
                break
            if machine_of[broker] in machines or (wants_new_rack and rack_of[broker] in racks):
                continue
            replicas.append(broker)
            racks.add(rack_of[broker])
            machines.add(machine_of[broker])
    return tuple(replicas)
