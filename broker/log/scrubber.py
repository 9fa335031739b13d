"""Examines segments in worker threads: every segment periodically, and at once a segment that a read
suspects.

A disk may change its content without an error, and an old segment may stay unread for months. The scrubber
reads every segment once in `log.scrub.interval.ms`, at no more than `log.scrub.max.bytes.per.second`, and
compares checksums, offsets, leader epochs and index entries. It replaces a wrong index. It marks a wrong log
as damaged: until the segment has been copied from another replica, the broker refuses reads from the damage
on with KAFKA_STORAGE_ERROR, which clients retry at another replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.log import names
from holdfast_log.broker.log.damage import Damage, encode_damage
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.inspection import Inspection
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.pressure import RETRY_S, is_pressure
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.settings import BROKER_SETTINGS
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError

logger = logging.getLogger(__name__)

_PART_BYTES = 4 << 20
"""Bytes that a worker examines before it returns."""


@settings_group(BROKER_SETTINGS)
@dataclass(frozen=True, slots=True)
class ScrubSettings:
    """How often and how fast all segments are examined."""

    interval_ms: Annotated[int, "log.scrub.interval.ms"] = 604_800_000
    bytes_per_second_max: Annotated[int, "log.scrub.max.bytes.per.second"] = 4 << 20


@dataclass(frozen=True, slots=True)
class _Task:
    """One segment to be examined. `is_urgent`: a read waits for the result, and no rate applies."""

    log: Log
    segment: Segment
    truncations: int
    inspection: Inspection
    is_urgent: bool


class Scrubber:
    """Examines one segment at a time. `damaged` is called with each log in which it finds damage."""

    def __init__(
        self,
        logs: Iterable[Log],
        disk: Disk,
        workers: Workers,
        clock: Clock,
        date_ms: TimeOfDay,
        settings: ScrubSettings,
        damaged: Callable[[Log], None],
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._date_ms = date_ms
        self._settings = settings
        self._damaged = damaged
        self._suspects: dict[tuple[Log, int], None] = {}
        """(log, base offset) of segments that reads suspect, oldest suspicion first."""
        self._round: Iterator[tuple[Log, Segment]] = iter(())
        self._next_round_s: float | None = None
        """When the next round begins; None: there are no rounds."""
        self._is_busy = False
        self._is_stopped = False
        self._alarm = Alarm(clock, self._proceed)
        """Set for the next segment."""

    def start(self) -> None:
        """Begin the first round now, unless log.scrub.interval.ms is -1."""
        if self._settings.interval_ms >= 0:
            self._next_round_s = self._clock.seconds()
            self._proceed()

    def stop(self) -> None:
        """Examine nothing more."""
        self._is_stopped = True
        self._alarm.cancel()

    def examine(self, log: Log, base_offset: int, why: str) -> None:
        """Examine a segment at once, because a read found content in it that no broker writes."""
        key = (log, base_offset)
        if key in self._suspects:
            return
        logger.warning("%s, segment %d, is being examined: %s", log.topic_partition, base_offset, why)
        self._suspects[key] = None
        # Begin after the read that suspects the segment has returned: an examination may close the active
        # segment.
        self._wake(0.0)

    # -- one after the other -------------------------------------------------------------------------------

    def _wake(self, delay_s: float) -> None:
        if not self._is_busy and not self._is_stopped:
            self._alarm.set(delay_s)

    def _proceed(self) -> None:
        """Begin with the next segment, or wait for the next round."""
        if self._is_busy or self._is_stopped:
            return
        task = self._next_task()
        if task is not None:
            self._alarm.cancel()
            self._is_busy = True
            self._advance(task)
        elif self._next_round_s is not None:
            self._wake(max(0.001, self._next_round_s - self._clock.seconds()))

    def _next_task(self) -> _Task | None:
        for log, base_offset in list(self._suspects):
            segment = next((each for each in log.segments if each.base_offset == base_offset), None)
            if segment is not None and log.failure is None and self._close_segment(log, segment):
                return _task(log, segment, is_urgent=True)
            del self._suspects[log, base_offset]
        if self._next_round_s is not None and self._clock.seconds() >= self._next_round_s:
            self._round = self._segments()
            self._next_round_s = self._clock.seconds() + self._settings.interval_ms / 1000
        for log, segment in self._round:
            # An empty file may have lost its records.
            has_records = segment.next_offset > segment.base_offset
            if log.failure is None and segment in log.segments and has_records:
                return _task(log, segment, is_urgent=False)
        return None

    def _segments(self) -> Iterator[tuple[Log, Segment]]:
        for log in list(self._logs):
            for segment in list(log.segments):
                yield log, segment

    def _close_segment(self, log: Log, segment: Segment) -> bool:
        """If the segment is active, roll the log, because the indexes of a growing segment cannot be
        replaced. Returns whether the segment is closed now."""
        try:
            if segment is log.segments.active:
                log.roll(self._date_ms())
        except BrokerError as error:
            logger.warning("%s cannot be examined: %s", segment.path, error)
        return segment is not log.segments.active

    def _advance(self, task: _Task) -> None:
        part = _PART_BYTES if task.is_urgent else min(_PART_BYTES, self._settings.bytes_per_second_max)
        read = self._workers.run(task.inspection.advance, part)
        read.addCallback(lambda size: self._advanced(task, size))
        read.addErrback(lambda failure: self._stopped(task, failure))

    def _advanced(self, task: _Task, size: int) -> None:
        delay_s = 0.0 if task.is_urgent else size / self._settings.bytes_per_second_max
        if task.inspection.is_done:
            applied = self._apply(task)
            applied.addErrback(lambda failure: self._stopped(task, failure))
            applied.addCallback(lambda _: self._finished(task, delay_s))
        elif not self._is_stopped:
            self._clock.callLater(delay_s, self._advance, task)

    def _stopped(self, task: _Task, failure: Failure) -> None:
        """Errback: the segment could not be examined, or the result could not be written."""
        error = failure.value
        if is_pressure(error):
            self._finished(task, RETRY_S)
        elif isinstance(error, FileNotFoundError) and not _is_current(task):
            self._finished(task, 0.0)
        elif isinstance(error, OSError):
            task.log.failed(error)
            self._finished(task, 0.0)
        else:
            logger.error("%s could not be examined", task.segment.path, exc_info=raised(failure))
            self._finished(task, RETRY_S)

    def _finished(self, task: _Task, delay_s: float) -> None:
        if task.is_urgent:
            self._suspects.pop((task.log, task.segment.base_offset), None)
        self._is_busy = False
        self._wake(delay_s)

    # -- what was found ------------------------------------------------------------------------------------

    def _apply(self, task: _Task) -> Deferred[None]:
        if self._is_stopped or not _is_current(task):
            return succeed(None)
        log, segment, inspection = task.log, task.segment, task.inspection
        is_wrong = inspection.damage is not None or not inspection.are_indexes_sound
        if is_wrong and not self._close_segment(log, segment):
            return succeed(None)
        if inspection.damage is not None:
            return self._mark(log, segment, inspection)
        if not inspection.are_indexes_sound:
            return self._replace_indexes(task)
        if segment.damage is not None:
            if not _reads_past(segment.damage, inspection):
                return succeed(None)
            segment.damage = None
            logger.warning("%s, which was damaged, is sound again", segment.path)
            return self._workers.run(self._disk.remove, segment.path_of(names.DAMAGED))
        if task.is_urgent:
            # The files are sound, so the index entries in memory may be wrong: read them again.
            segment.reload_indexes()
            logger.warning("%s has been examined, and nothing wrong was found in it", segment.path)
        return succeed(None)

    def _mark(self, log: Log, segment: Segment, inspection: Inspection) -> Deferred[None]:
        damage = inspection.damage
        assert damage is not None
        if segment.damage is None:
            logger.error(
                "%s: %s is damaged at byte %d: %s; reads of offsets %d to %d are refused until the segment "
                "has been copied from another replica",
                log.topic_partition,
                segment.path,
                damage.position,
                damage.reason,
                damage.offset,
                (damage.behind.offset if damage.behind is not None else segment.next_offset) - 1,
            )
        segment.damage = damage
        self._damaged(log)
        path = segment.path_of(names.DAMAGED)
        written = self._workers.run(self._disk.write_atomically, path, encode_damage(damage))
        return written.addCallback(lambda _: self._marked(log, segment, damage))

    def _marked(self, log: Log, segment: Segment, damage: Damage) -> Deferred[None]:
        """Remove the mark again if the damage was truncated or repaired while a worker wrote it."""
        if segment.damage is damage and segment in log.segments:
            return succeed(None)
        return self._workers.run(self._disk.remove, segment.path_of(names.DAMAGED))

    def _replace_indexes(self, task: _Task) -> Deferred[None]:
        segment = task.segment
        paths = segment.indexes.offsets.path, segment.indexes.times.path
        written = self._workers.run(task.inspection.write_indexes, *paths)

        def replaced(_: None) -> None:
            if _is_current(task):
                segment.reload_indexes()
                logger.warning("Rebuilt the indexes of %s, which did not fit the log", segment.path)

        return written.addCallback(replaced)


def _reads_past(damage: Damage, inspection: Inspection) -> bool:
    """Whether an examination that found nothing wrong has read the records that were damaged. It finds
    nothing wrong with a compacted segment that has lost its last batches, once the indexes were rebuilt."""
    return inspection.end_offset > damage.offset


def _task(log: Log, segment: Segment, *, is_urgent: bool) -> _Task:
    is_closed = segment is not log.segments.active
    inspection = Inspection(
        log.disk,
        segment.path,
        segment.base_offset,
        segment.size,
        segment.next_offset if is_closed else None,
        segment.is_dense,
        log.epochs.entries,
        log.log_start_offset,
        log.settings.index_interval_bytes,
        segment.indexes.offsets.path if is_closed else None,
        segment.indexes.times.path if is_closed else None,
    )
    return _Task(log, segment, log.truncations, inspection, is_urgent)


def _is_current(task: _Task) -> bool:
    """Whether the segment is still in use and has not changed since it was examined."""
    log = task.log
    return log.failure is None and task.segment in log.segments and task.truncations == log.truncations
