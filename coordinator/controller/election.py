"""Who leads a partition: functions of its replicas and of who is alive. Pure.

Each returns the new leader and in-sync replicas, or None where nobody may lead. They never look at logs: a
member of the in-sync set has every committed record, and that is all that counts (Kafka design §4.7).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    """A leader and the replicas in sync with it, the leader among them.

    `unclean` says that the leader was not in sync: committed records may have been lost.
    """

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect_after_failure(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], *, unclean_allowed: bool
) -> ElectedLeader | None:
    """A leader for a partition whose leader has gone: the first live replica in sync.

    Where none is left and `unclean_allowed` (unclean.leader.election.enable), the first live replica, alone
    in sync: availability before consistency, as Kafka design §4.7 offers.
    """
    for replica in replicas:
        if replica in live and replica in isr:
            return ElectedLeader(replica, _alive(isr, live))
    if unclean_allowed:
        for replica in replicas:
            if replica in live:
                return ElectedLeader(replica, (replica,), unclean=True)
    return None


def elect_for_new_partition(replicas: Sequence[int], live: Collection[int]) -> ElectedLeader | None:
    """The first leader of a partition, its first live replica. All live ones are in sync, being empty."""
    in_sync = _alive(replicas, live)
    return ElectedLeader(in_sync[0], in_sync) if in_sync else None


def elect_preferred(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> ElectedLeader | None:
    """The preferred leader, the first of the replicas, if it is alive and in sync."""
    preferred = replicas[0]
    return ElectedLeader(preferred, tuple(isr)) if preferred in live and preferred in isr else None


def elect_for_reassignment(
    target: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> ElectedLeader | None:
    """A leader among the replicas that stay: the first live one in sync."""
    for replica in target:
        if replica in live and replica in isr:
            return ElectedLeader(replica, tuple(isr))
    return None


def elect_for_controlled_shutdown(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], shutting_down: Collection[int]
) -> ElectedLeader | None:
    """A leader in place of a broker that is about to stop: the first in sync that stays.

    The brokers that stop leave the in-sync set, so that nobody waits for them.
    """
    for replica in replicas:
        if replica in live and replica in isr and replica not in shutting_down:
            return ElectedLeader(replica, tuple(member for member in isr if member not in shutting_down))
    return None


def isr_without(isr: Sequence[int], gone: Collection[int]) -> tuple[int, ...]:
    """The in-sync set without the brokers that have gone.

    When they are all of it, it stays as it is: they alone are known to have every committed record.
    """
    return tuple(member for member in isr if member not in gone) or tuple(isr)


def _alive(members: Sequence[int], live: Collection[int]) -> tuple[int, ...]:
    return tuple(member for member in members if member in live)
