"""Values of a partition's replica: what the controller assigns to it, its roles, and what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast_log.broker.log.batch_order import BatchOrder
from holdfast_log.broker.log.transactions import AbortedEntry
from holdfast_log.protocol.frames import FileSlice

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """State of a partition in the controller's LeaderAndIsr request. `eligible` are replicas out of sync that
    have every committed record (KIP-966)."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Following:
    """The role of a replica that copies from broker `leader`; -1 if there is no leader."""

    leader: int


class PartitionRead(NamedTuple):
    """Result of a read. The reader may see offsets below `end_offset`."""

    high_watermark: int
    log_start_offset: int
    end_offset: int
    records: FileSlice | None = None
    unchecked: BatchOrder | None = None
    """What the batches must be like; None if they have been checked. See `broker.log.log.LogRead`."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) at which the reader must truncate: its log diverges from this one (KIP-595)."""
    last_stable_offset: int = NO_OFFSET
    """See `Partition.last_stable_offset`."""
    aborted: list[AbortedEntry] | None = None
    """The aborted transactions in the records, for a reader of committed ones; None for any other."""


ReadWish: TypeAlias = tuple[int, ...]
"""What a consumer's read of one partition depends on: its offset, its maximum of bytes, the leader epoch that
it expects, and the epoch of the batch that it has read last; and its isolation level, unless that is 0."""
