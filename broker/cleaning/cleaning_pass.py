"""One pass over a log: finds the last record of each key in its dirty part, then replaces its segments.

Workers read and write; between two parts of their work, and before each change, the pass checks that the log
is still as it was planned. If it was truncated, deleted or failed, or retention has removed segments, the
pass is aborted: the segments that it has replaced so far stay, and the next pass begins with what the log is
then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast_log.broker.cleaning.copying import GroupCopy, sorted_offsets
from holdfast_log.broker.cleaning.mapping import KeyMapping
from holdfast_log.broker.cleaning.offset_map import OffsetMap
from holdfast_log.broker.cleaning.plan import CleaningPlan, groups_of
from holdfast_log.broker.cleaning.producers import last_batches
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.cleaning.sources import Source
from holdfast_log.broker.cleaning.transactions import PassTransactions
from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.log.aborted_search import aborted_between
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.mapped_offset import write_mapped_offset
from holdfast_log.broker.log.replacement import (
    SegmentReplacement,
    begin_replacement,
    finish_replacement,
    is_current,
)
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.snapshots import snapshot_path
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import TimeOfDay
from holdfast_log.protocol.compaction import Rules, Table

logger = logging.getLogger(__name__)

_PART_BYTES = 4 << 20
"""Bytes that a worker reads and writes before it returns."""
TRANSACTIONS_AT_ONCE = 4_000
"""Maximum number of aborted transactions that are looked up at once and end in what is read next: some ms of
work, and a MiB in memory. Besides, each producer may have one that ends later."""
_TIME_MAX = 2**63 - 1
_NEVER_MS = -1
"""A time of day at which no tombstone has expired."""


class CleaningAborted(Exception):
    """The log has changed, or the broker stops."""


class _Job(Protocol):
    """Work for a worker, in parts."""

    is_done: bool

    def advance(self, bytes_max: int) -> int: ...


@dataclass(frozen=True, slots=True)
class PassSurroundings:
    """What a pass uses. `pause` is called with the bytes that a worker has read and written; the pass waits
    for its result. `is_stopped` says whether the broker stops."""

    disk: Disk
    workers: Workers
    budget: DecompressionBudget
    date_ms: TimeOfDay
    settings: CleanerSettings
    pause: Callable[[int], Deferred[None]]
    is_stopped: Callable[[], bool]


class CleaningPass:
    """Carries out a plan. `end_offset` is that up to which the pass compacts; less than planned if the map of
    keys was full."""

    def __init__(self, plan: CleaningPlan, around: PassSurroundings) -> None:
        self.end_offset = plan.segments[-1].next_offset
        self.bytes_before = 0
        """Size of the segments that have been copied so far."""
        self.bytes_after = 0
        """Size of what has remained of them."""
        self.horizons: set[int] = set()
        """The delete horizons of the batches that have remained."""
        self._plan = plan
        self._log = plan.log
        self._around = around
        self._workers = around.budget.share(around.budget.batch_bytes_max)
        self._truncations = plan.log.truncations
        self._cleaned_offset = plan.log.cleaned_offset
        self._left = list(plan.segments)
        """The segments that are to be copied still."""
        self._previous_epoch: int | None = None
        self._is_noted = False
        """Whether it is durable up to which offset this pass has looked at keys."""

    async def run(self) -> None:
        """Compact the log. Raises `CleaningAborted`, `UncleanableSegment`, and OSError."""
        table = await self._map_keys()
        self._left = [segment for segment in self._left if segment.base_offset < self.end_offset]
        producers = await self._last_batches()
        transactions = self._transactions(self._left[0].base_offset)
        for group in groups_of(self._left, self._log.settings):
            await self._clean_group(group, table, producers, transactions)
            del self._left[: len(group)]
        self._check()
        self._log.cleaned_offset = max(self._log.cleaned_offset, self.end_offset)

    async def _map_keys(self) -> Table:
        plan, log = self._plan, self._log
        if not plan.dirty_segments:
            return OffsetMap.for_offsets(0, self._around.settings).table
        transactions = self._transactions(plan.dirty_segments[0].base_offset)
        mapping = KeyMapping(
            self._around.disk, sources_of(plan.dirty_segments), plan.first_dirty, self._around.settings,
            self._around.budget.batch_bytes_max, transactions,
        )  # fmt: skip
        try:
            await self._work(mapping, transactions)
        finally:
            mapping.close()
        assert mapping.map is not None
        self.end_offset = mapping.end_offset
        if self.end_offset < plan.segments[-1].next_offset:
            logger.info(
                "%s has more keys than log.cleaner.dedupe.buffer.size has room for: this pass ends at "
                "offset %d, the next one continues there",
                log.topic_partition, self.end_offset,
            )  # fmt: skip
        return mapping.map.table

    async def _last_batches(self) -> dict[int, int]:
        """The base offset of the last batch of each producer that the log remembers."""
        log, around = self._log, self._around
        path = snapshot_path(log.directory, self._left[-1].next_offset)
        known = log.producers.ids()
        found = await around.workers.run(last_batches, around.disk, path, sources_of(self._left), known)
        self._check()
        return found

    def _transactions(self, first_offset: int) -> PassTransactions:
        """The transactions from an offset on."""
        entries = self._log.producers.entries()
        bare = ((each.producer_id, each.epoch) for each in entries if not each.batches)
        return PassTransactions(first_offset, frozenset(bare))

    def _learn(self, transactions: PassTransactions) -> None:
        """Look for the aborted transactions behind those that are known."""
        end_offset = self._plan.segments[-1].next_offset
        transactions.learn(
            *aborted_between(self._log, transactions.known_to, end_offset, TRANSACTIONS_AT_ONCE)
        )

    async def _clean_group(
        self,
        group: Sequence[Segment],
        table: Table,
        producers: dict[int, int],
        transactions: PassTransactions,
    ) -> None:
        log, around, settings = self._log, self._around, self._around.settings
        now_ms = around.date_ms()
        is_end_of_log = group[-1].next_offset == log.log_end_offset
        rules = Rules(
            table,
            self.end_offset,
            # The log's last record stays, even a tombstone: readers see by it how far the log reaches.
            _NEVER_MS if is_end_of_log else now_ms,
            min(now_ms + log.settings.delete_retention_ms, _TIME_MAX),
            sorted_offsets(list(producers.values())),
            sorted_offsets(log.producers.append_ids.first_offsets()),
        )
        copy = GroupCopy(
            around.disk,
            sources_of(group),
            rules,
            previous_epoch=self._previous_epoch,
            last_epoch=log.epochs.epoch_at(group[-1].next_offset - 1),
            index_interval_bytes=log.settings.index_interval_bytes,
            piece_bytes=settings.piece_bytes,
            batch_bytes_max=around.budget.batch_bytes_max,
            transactions=transactions,
            indexed=group[0].aborted.count,
        )
        try:
            await self._work(copy, transactions)
            self._tell_of_kept(copy)
            self._previous_epoch = copy.previous_epoch
            self.horizons |= copy.horizons
            is_swapped = copy.is_changed and await self._swap(group, copy)
        except Exception:
            await around.workers.run(copy.remove)
            raise
        if not is_swapped:
            await around.workers.run(copy.remove)
        self.bytes_before += sum(segment.size for segment in group)
        self.bytes_after += copy.size

    def _tell_of_kept(self, copy: GroupCopy) -> None:
        if copy.unreadable:
            logger.warning(
                "%s keeps all records of %d batches, the first at offset %d: they are damaged, or decompress "
                "to more than %d bytes, a quarter of decompression.max.bytes",
                self._log.topic_partition, len(copy.unreadable), copy.unreadable[0],
                self._around.budget.batch_bytes_max,
            )  # fmt: skip

    async def _swap(self, group: Sequence[Segment], copy: GroupCopy) -> bool:
        log, around = self._log, self._around
        replacement = SegmentReplacement(
            log, tuple(group), copy.size, self._truncations, max(segment.created_ms for segment in group),
            copy.has_aborted,
        )  # fmt: skip
        if not self._is_noted:
            await self._note_mapped_offset()
        if not begin_replacement(replacement):
            raise CleaningAborted
        await around.workers.run(around.disk.fsync_directory, log.directory)
        if around.is_stopped() or not finish_replacement(replacement):
            raise CleaningAborted
        log.mapped_offset = max(log.mapped_offset, self.end_offset)
        await around.workers.run(around.disk.fsync_directory, log.directory)
        return True

    async def _note_mapped_offset(self) -> None:
        """Make it durable how far this pass has looked at keys, before it removes the first record."""
        log = self._log
        offset = max(log.mapped_offset, self.end_offset)
        await self._around.workers.run(write_mapped_offset, self._around.disk, log.directory, offset)
        self._is_noted = True

    async def _work(self, job: _Job, transactions: PassTransactions) -> None:
        while not job.is_done:
            if transactions.is_behind:
                self._learn(transactions)
            size = await self._workers.run(job.advance, _PART_BYTES)
            self._check()
            await self._around.pause(size)
            self._check()

    def _check(self) -> None:
        log = self._log
        is_unchanged = is_current(log, self._left, self._truncations)
        if self._around.is_stopped() or not is_unchanged or log.cleaned_offset != self._cleaned_offset:
            raise CleaningAborted


def sources_of(segments: Sequence[Segment]) -> list[Source]:
    """Segments as workers read them."""
    return [
        Source(segment.path, segment.base_offset, segment.next_offset, segment.size) for segment in segments
    ]
