"""Leader election of one partition: pure functions of its replicas, in-sync set and live brokers.

Each function returns the new leader and in-sync set, or None if no replica may lead. A clean election does
not compare logs: every in-sync replica and every eligible replica has all committed records, which is enough
(Kafka design §4.7, KIP-966). Only if there is no such replica, the one with the longest log is elected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    """A leader and its in-sync set, which includes the leader.

    `unclean`: the leader was neither in sync nor eligible before, so committed records may be lost.
    """

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True, order=True)
class ReplicaEnd:
    """Where a replica's log ends: the leader epoch of its last batch, -1 if unknown or without batches, and
    its end offset. The greatest belongs to the log that has most: of two logs whose last batches come from
    the same leader one is the beginning of the other, and a later leader had every committed record."""

    leader_epoch: int
    offset: int


def elect_after_failure(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], *, eligible: Sequence[int] = ()
) -> ElectedLeader | None:
    """Elect the first live replica in sync, after the leader has failed.

    If there is none, elect the first live one of `eligible`, alone in sync until others have caught up with
    it (KIP-966).
    """
    for replica in replicas:
        if replica in live and replica in isr:
            return ElectedLeader(replica, _alive(isr, live))
    for replica in replicas:
        if replica in live and replica in eligible:
            return ElectedLeader(replica, (replica,))
    return None


def elect_longest(
    replicas: Sequence[int], ends: Mapping[int, ReplicaEnd], last_known_leader: int
) -> ElectedLeader | None:
    """Elect the replica with the longest log (KIP-966): of equal ones the last known leader, then the first.

    `ends` are the ends of the logs of all candidates. Committed records are lost if no candidate has them.
    """
    candidates = [each for each in (last_known_leader, *replicas) if each in ends and each in replicas]
    if not candidates:
        return None
    longest = max(candidates, key=lambda replica: ends[replica])
    return ElectedLeader(longest, (longest,), unclean=True)


def elect_for_new_partition(replicas: Sequence[int], live: Collection[int]) -> ElectedLeader | None:
    """Elect the first live replica of a new partition. All live replicas are in sync: all are empty."""
    in_sync = _alive(replicas, live)
    return ElectedLeader(in_sync[0], in_sync) if in_sync else None


def elect_preferred(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> ElectedLeader | None:
    """Elect the preferred leader, the first replica, if it is alive and in sync."""
    preferred = replicas[0]
    return ElectedLeader(preferred, tuple(isr)) if preferred in live and preferred in isr else None


def elect_for_reassignment(
    target: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> ElectedLeader | None:
    """Elect the first live in-sync replica of a reassignment's `target`."""
    for replica in target:
        if replica in live and replica in isr:
            return ElectedLeader(replica, tuple(isr))
    return None


def elect_for_controlled_shutdown(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> ElectedLeader | None:
    """Elect the first live in-sync replica that is not shutting down.

    Brokers that shut down leave the in-sync set, so that acks=all does not wait for them.
    """
    for replica in replicas:
        if replica in live and replica in isr and replica not in shutting_down:
            return ElectedLeader(replica, tuple(member for member in isr if member not in shutting_down))
    return None


def isr_without(isr: Sequence[int], gone: Collection[int]) -> tuple[int, ...]:
    """The in-sync set without the brokers in `gone`.

    If all members have gone, the set stays unchanged: only they are known to have every committed record.
    """
    return tuple(member for member in isr if member not in gone) or tuple(isr)


def _alive(members: Sequence[int], live: Collection[int]) -> tuple[int, ...]:
    return tuple(member for member in members if member in live)
