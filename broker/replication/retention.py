"""Removes the oldest segments of this broker's replicas, every `log.retention.check.interval.ms`.

Each replica, leader or follower, applies the limits to its own log, and never beyond its own last stable
offset, which is at most its high watermark (`broker.log.retention` decides). A check of all logs has three
steps:

1. The start of each log with segments to remove moves forward. From then on reads before it are refused, and
   followers and consumers learn of it by their next fetch.
2. One checkpoint with all moved starts is made durable. Without it, a power failure between two renames of
   step 3 could bring back an older segment without the one after it.
3. The files of the segments are renamed, and removed after `file.delete.delay.ms`. A fetch that is being
   answered from one of them keeps it open.

Steps 1 and 3 do a little work in each turn of the reactor, so that clients are served in between: one that
may produce can have thousands of logs expire at once, with records of long ago.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.log.damage import SuspectSegment
from holdfast_log.broker.log.retention import Removal, RemovalReason, RetentionRule, removal
from holdfast_log.broker.log.segment_times import TimestampReading, segment_facts
from holdfast_log.broker.log.truncation import discard_before_start, move_log_start
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError

_log = logging.getLogger(__name__)

_LOGS_PER_TURN = 32
"""Logs that are looked at in one turn. One whose start moves takes the rest of its turn: if the active
segment is to go, its indexes and a snapshot are written and the files of a new one created, which takes
1.4 ms."""
_SEGMENTS_PER_TURN = 4
"""Segments whose files are renamed in one turn: up to five files each."""


class Retention:
    """Checks all replicas of this broker. `write_starts` makes the present log start offsets durable; it
    never fails (see `CheckpointWriter.write_offsets`)."""

    def __init__(
        self,
        replicas: Replicas,
        write_starts: Callable[[], Deferred[None]],
        workers: Workers,
        clock: Clock,
        date_ms: TimeOfDay,
    ) -> None:
        self._replicas = replicas
        self._write_starts = write_starts
        self._workers = workers
        self._clock = clock
        self._date_ms = date_ms
        self._is_busy = False
        self._is_stopped = False
        self._work = 0.0
        """Logs and segments handled since the reactor's turn began, in shares of what fits into a turn."""
        self._warned: dict[Partition, int] = {}
        """Base offset of the segment that was written in the future, as last logged."""

    def check(self) -> None:
        """Begin a check of all replicas, unless the previous one is still running."""
        if not self._is_busy and not self._is_stopped:
            self._is_busy = True
            ensureDeferred(self._check_all()).addErrback(_failed).addCallback(self._ended)

    def stop(self) -> None:
        """Begin nothing more: the logs are about to be closed."""
        self._is_stopped = True

    def _ended(self, _: object) -> None:
        self._is_busy = False

    async def _check_all(self) -> None:
        self._warned = {each: base for each, base in self._warned.items() if self._has(each)}
        starts: dict[Partition, int] = {}
        for partition in list(self._replicas):
            await self._turn(1 / _LOGS_PER_TURN)
            if self._has(partition) and await self._shorten(partition):
                starts[partition] = partition.log.log_start_offset
        if not starts or self._is_stopped:
            return
        await self._write_starts()
        for partition, start in starts.items():
            await self._discard(partition, start)

    async def _turn(self, work: float) -> None:
        """Wait for the next turn of the reactor if this one has had its share of work."""
        self._work += work
        if self._work >= 1:
            self._work = 0.0
            await pause(self._clock)

    def _has(self, partition: Partition) -> bool:
        """Whether the replica is still this broker's, and its log can be used."""
        return (
            not self._is_stopped
            and not partition.is_offline
            and not partition.is_deleted
            and self._replicas.find(partition.topic, partition.index) is partition
        )

    # -- the log start -------------------------------------------------------------------------------------

    async def _shorten(self, partition: Partition) -> bool:
        """Move the log's start forward past the segments that are not kept. Returns whether segments lie
        before the start."""
        try:
            decided = self._decide(partition)
            while decided.unread is not None:
                is_read = await self._read_timestamp(partition, decided.unread)
                if not self._has(partition):
                    return False
                # Also where it could not be read: the log, and the clock, may have changed meanwhile.
                decided = self._decide(partition)
                if not is_read:
                    break
            if decided.kept_by_future is not None:
                self._warn_of_future(partition, decided.kept_by_future)
            if not decided.segments:
                return False
            log = partition.log
            is_later = decided.log_start_offset > log.log_start_offset
            if is_later:
                _log_removal(partition, decided)
            self._work = 1.0
            move_log_start(log, decided.log_start_offset, now_ms=self._date_ms())
            if is_later:
                self._replicas.start_moved(partition)
            return True
        except OSError as error:
            refused = partition.log.refused(error)
            _log.warning("Retention of %s is tried again later: %s", partition.key, refused)
        except BrokerError as error:
            _log.warning("Retention of %s is tried again later: %s", partition.key, error)
        return False

    def _decide(self, partition: Partition) -> Removal:
        log = partition.log
        rule = RetentionRule.of(log.settings, is_internal=partition.topic in INTERNAL_TOPICS)
        now_ms = self._date_ms()
        return removal(
            segment_facts(log, now_ms),
            rule,
            size_bytes=log.size_bytes if rule.bytes_max >= 0 else 0,
            log_start_offset=log.log_start_offset,
            high_watermark=partition.last_stable_offset,
            now_ms=now_ms,
        )

    async def _read_timestamp(self, partition: Partition, base_offset: int) -> bool:
        """Read the largest timestamp of a segment. Returns whether it is known now. Raises OSError."""
        log = partition.log
        reading = TimestampReading.of(log, base_offset)
        try:
            reading.finish(await self._workers.run(reading.run))
        except SuspectSegment as error:
            if reading.is_current:
                log.suspect(reading.segment, error)
        except OSError:
            if reading.is_current:
                raise
        return reading.segment.indexes.max_timestamp is not None

    def _warn_of_future(self, partition: Partition, base_offset: int) -> None:
        if self._warned.get(partition) != base_offset:
            self._warned[partition] = base_offset
            _log.warning(
                "Retention keeps %s from offset %d on, because the file of that segment was written later "
                "than this machine's clock says: set the clock right",
                partition.key, base_offset,
            )  # fmt: skip

    # -- the files -----------------------------------------------------------------------------------------

    async def _discard(self, partition: Partition, durable_start: int) -> None:
        """Discard the segments before the log start that the checkpoint has, a few in each turn."""
        while self._has(partition):
            try:
                count = discard_before_start(partition.log, durable_start, _SEGMENTS_PER_TURN)
            except BrokerError as error:
                _log.warning("Old segments of %s are removed later: %s", partition.key, error)
                return
            if not count:
                return
            await self._turn(count / _SEGMENTS_PER_TURN)


def _log_removal(partition: Partition, decided: Removal) -> None:
    reasons = Counter(reason for _, reason in decided.segments)
    _log.info(
        "Removing %d segments of %s: %s; its log starts at offset %d now, %d before",
        len(decided.segments),
        partition.key,
        ", ".join(f"{reasons[reason]} by {reason.value}" for reason in RemovalReason if reason in reasons),
        decided.log_start_offset,
        partition.log.log_start_offset,
    )


def _failed(failure: Failure) -> None:
    _log.error("The check of retention failed; the next one begins anew", exc_info=raised(failure))
