"""The kinds of deadline in the ownership table: the keys of its `Timers`, judged by `sessions` when due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast_log.broker.ownership.resources import Waiter
from holdfast_log.coordinator.ownership.records import PartitionKey, ResourceKey


@dataclass(frozen=True, slots=True)
class OwnerDeadline:
    """The end of the session, or of the grace period, of the owner with this incarnation."""

    key: ResourceKey
    group: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class WaiterDeadline:
    """The end of a waiter's session, or of the time for which it waits."""

    key: ResourceKey
    waiter: Waiter


@dataclass(frozen=True, slots=True)
class SharerDeadline:
    """The end of the session of a producer with shared access."""

    key: ResourceKey
    connection: int


@dataclass(frozen=True, slots=True)
class ReservationDeadline:
    """The next time to look whether the owner of a whole topic, for whom a partition is kept, still is."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class NamesDeadline:
    """The next time to look for names to forget."""


ResourceDeadline: TypeAlias = OwnerDeadline | WaiterDeadline | SharerDeadline | ReservationDeadline
OwnershipDeadline: TypeAlias = ResourceDeadline | NamesDeadline
