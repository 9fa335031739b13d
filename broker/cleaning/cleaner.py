"""Compacts the logs of topics with cleanup.policy=compact in worker threads; `turns` says in which order.

Each replica compacts its own log, below its own high watermark. A log that cannot be compacted is marked and
skipped until the segment in question has changed; the others are compacted.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cleaning.cleaning_pass import (
    CleaningAborted,
    CleaningPass,
    PassSurroundings,
    sources_of,
)
from holdfast_log.broker.cleaning.horizons import NEVER_MS, HorizonSearch
from holdfast_log.broker.cleaning.plan import CleaningPlan, clean_segments, must_roll, plan_of
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.cleaning.sources import UncleanableSegment
from holdfast_log.broker.cleaning.turns import CleaningTurns, Rests
from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.pressure import is_pressure
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.setting_groups import Live
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError

logger = logging.getLogger(__name__)

_LOGS_PER_TURN = 200
"""Number of logs that are looked at in one turn of the reactor, at most. A broker has thousands."""
_TURN_S = 0.002
"""Time in seconds after which the look at further logs waits for the reactor's next turn: one with many
segments takes long."""
_SEARCH_BYTES = 4 << 20
"""Bytes of a file whose headers a worker reads before it returns."""
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))

_Steps: TypeAlias = "Generator[None, None, None]"
"""Looks at one log each step."""
_Chosen: TypeAlias = "Generator[None, None, bool]"
"""The same; returns whether a log was chosen."""
_END = object()


@dataclass(frozen=True, slots=True)
class UncleanableMark:
    """Why a log is skipped: what is wrong with a segment. The mark holds while the segment is as it was."""

    reason: str
    segment: Segment | None
    size: int = 0
    is_damaged: bool = False

    @classmethod
    def of(cls, segment: Segment, reason: str) -> UncleanableMark:
        return cls(reason, segment, segment.size, segment.damage is not None)

    def holds(self, log: Log) -> bool:
        """Whether the log still cannot be compacted. A mark without a segment holds until the broker
        stops."""
        segment = self.segment
        if segment is None:
            return True
        is_unchanged = segment.size == self.size and (segment.damage is not None) == self.is_damaged
        return is_unchanged and segment in log.segments


class Cleaner:
    """Compacts up to log.cleaner.threads logs at once.

    `committed_offset` returns the offset below which the records of a log are committed; None while the log
    has no role. `date_ms` is the time of day, by which tombstones expire.
    """

    def __init__(
        self,
        logs: Iterable[Log],
        disk: Disk,
        workers: Workers,
        clock: Clock,
        date_ms: TimeOfDay,
        settings: Live[CleanerSettings],
        committed_offset: Callable[[Log], int | None],
        budget: DecompressionBudget | None = None,
    ) -> None:
        self.uncleanable: dict[Log, UncleanableMark] = {}
        """The logs that are skipped."""
        self.passes = 0
        """Number of passes that have been completed."""
        self._logs = logs
        self._disk = disk
        self._workers = workers
        self._budget = budget or DecompressionBudget(workers)
        self._clock = clock
        self._date_ms = date_ms
        self._settings = settings
        self._committed_offset = committed_offset
        self.busy: dict[Log, None] = {}
        """The logs that are being compacted."""
        self._searched: dict[Log, None] = {}
        """The logs whose horizons are being looked for."""
        self._is_passs_turn = True
        """Whether a pass begins next, and not a search for horizons, if there is work of both kinds."""
        self._turns = CleaningTurns(INTERNAL_TOPICS.__contains__)
        self._rests = Rests(clock.seconds)
        self._horizons: dict[Log, int] = {}
        """When the first tombstone may go that compaction has left in a log, in ms of the time of day. Only
        logs that this process has compacted or looked through are here."""
        self._free_s = 0.0
        """When the bytes that were read and written so far have taken their time, in seconds of the clock."""
        self._is_stopped = False
        self._steps: _Steps | None = None
        """What is left to do until passes and searches have begun; None between two looks at the logs."""
        self._alarm = Alarm(clock, self._look)

    def start(self) -> None:
        """Begin to compact, unless log.cleaner.enable is false."""
        if self._settings.current().is_enabled:
            self._alarm.set(0.0)

    def stop(self) -> None:
        """Begin no pass, and abort those that are under way."""
        self._is_stopped = True
        self._steps = None
        self._alarm.cancel()

    # -- choosing ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Begin passes over the logs whose turn it is, and look again later. Many logs take several turns."""
        if self._steps is None:
            self._steps = self._choosing()
        ends_s = self._clock.seconds() + _TURN_S
        for _ in range(_LOGS_PER_TURN):
            if self._is_stopped or next(self._steps, _END) is _END:
                self._steps = None
                break
            if self._clock.seconds() >= ends_s:
                break
        if self._is_stopped or self._alarm.is_set:
            return
        self._alarm.set(0.0 if self._steps else self._settings.current().backoff_ms / 1000)

    def _choosing(self) -> _Steps:
        """Begin as many passes and searches as there may be."""
        self._forget_deleted()
        while len(self.busy) + len(self._searched) < self._settings.current().threads:
            first, second = self._kinds_in_turn()
            if not (yield from first()) and not (yield from second()):
                return

    def _forget_deleted(self) -> None:
        logs = self._logs
        self._rests.forget_others(logs)
        self._horizons = {log: self._horizons[log] for log in logs if log in self._horizons}
        self.uncleanable = {
            log: mark for log, mark in self.uncleanable.items() if log.failure is None and mark.holds(log)
        }

    def _kinds_in_turn(self) -> tuple[Callable[[], _Chosen], Callable[[], _Chosen]]:
        """What begins a pass, and what begins a search, in turn: if there is always a log to compact, there
        still are searches."""
        self._is_passs_turn = not self._is_passs_turn
        if self._is_passs_turn:
            return self._begin_search, self._begin_pass
        return self._begin_pass, self._begin_search

    def _begin_pass(self) -> _Chosen:
        """Begin the pass whose turn it is. Returns whether there is one."""
        plans: dict[Log, CleaningPlan] = {}
        for log in list(self._logs):
            plan = self._plan(log)
            if plan is not None:
                plans[log] = plan
            yield
        while (chosen := self._turns.choose(plans.values(), self._clock.seconds())) is not None:
            # The log may have changed since it was looked at, in a turn before.
            plan = self._plan(chosen.log)
            if plan is not None:
                self._begin(plan, self._settings.current())
                return True
            del plans[chosen.log]
            yield
        return False

    def _may_compact(self, log: Log) -> bool:
        is_compacted = log.settings.is_compacted and log.failure is None
        return (
            is_compacted
            and log not in self.busy
            and log not in self._searched
            and not self._rests.is_resting(log)
            and log not in self.uncleanable
        )

    def _plan(self, log: Log) -> CleaningPlan | None:
        """The next pass over a log; None if it may not be compacted, or need not."""
        committed_offset = self._committed_offset(log) if self._may_compact(log) else None
        if committed_offset is None:
            return None
        now_ms = self._date_ms()
        try:
            if must_roll(log, now_ms):
                log.roll(now_ms)
            return plan_of(log, committed_offset, now_ms, self._horizons.get(log, NEVER_MS))
        except UncleanableSegment as error:
            self._mark(log, error)
        except OSError as error:
            log.refused(error)
        except BrokerError as error:
            logger.warning("%s cannot be compacted now: %s", log.topic_partition, error)
        return None

    # -- one log -------------------------------------------------------------------------------------------

    def _begin(self, plan: CleaningPlan, settings: CleanerSettings) -> None:
        log = plan.log
        self.busy[log] = None
        self._turns.begin(log, self._clock.seconds())
        around = PassSurroundings(
            self._disk,
            self._workers,
            self._budget,
            self._date_ms,
            settings,
            self._pause,
            lambda: self._is_stopped,
        )
        cleaning = CleaningPass(plan, around)
        begun_s, begun_ms = self._clock.seconds(), self._date_ms()
        done = ensureDeferred(cleaning.run())
        done.addCallback(lambda _: self._completed(plan, cleaning, begun_s))
        # What has stayed although its horizon had passed stays for another reason: the log's last record.
        done.addCallback(lambda _: self._note_horizons(log, cleaning.horizons, after_ms=begun_ms))
        done.addErrback(lambda failure: self._failed(log, failure))
        done.addBoth(lambda _: self._ended(log))

    def _note_horizons(self, log: Log, horizons: Iterable[int], *, after_ms: int = -1) -> None:
        self._horizons[log] = min((each for each in horizons if each > after_ms), default=NEVER_MS)

    # -- the horizons of logs that an earlier process has compacted ----------------------------------------

    def _begin_search(self) -> _Chosen:
        """Look through the first log whose horizons are not known. Returns whether there is one."""
        for log in list(self._logs):
            if log not in self._horizons and self._may_compact(log):
                sources = sources_of(clean_segments(log, log.segments[:-1]))
                if sources:
                    self._search(log, HorizonSearch(self._disk, sources))
                    return True
                self._note_horizons(log, ())
            yield
        return False

    def _search(self, log: Log, search: HorizonSearch) -> None:
        self._searched[log] = None
        done = ensureDeferred(self._look_through(log, search))
        done.addErrback(lambda failure: self._failed(log, failure))
        done.addBoth(lambda _: self._ended(log))

    async def _look_through(self, log: Log, search: HorizonSearch) -> None:
        while not search.is_done and not self._is_stopped:
            size = await self._workers.run(search.advance, _SEARCH_BYTES)
            await self._pause(size)
        self._note_horizons(log, search.horizons)

    def _completed(self, plan: CleaningPlan, cleaning: CleaningPass, begun_s: float) -> None:
        log = plan.log
        self.passes += 1
        if cleaning.end_offset == plan.segments[-1].next_offset:
            self._rests.completed(log, cleaning.bytes_before, cleaning.bytes_after, self._backoff_s)
        logger.info(
            "Compacted %s up to offset %d in %d ms: %d bytes were %d before",
            log.topic_partition, cleaning.end_offset, round((self._clock.seconds() - begun_s) * 1000),
            cleaning.bytes_after, cleaning.bytes_before,
        )  # fmt: skip

    def _failed(self, log: Log, failure: Failure) -> None:
        """Errback of a pass."""
        error = failure.value
        if isinstance(error, CleaningAborted) or log.failure is not None:
            self._rests.aborted(log, self._backoff_s)
            logger.info("The compaction of %s was aborted, because the log has changed", log.topic_partition)
            return
        self._rests.failed(log, self._backoff_s)
        if isinstance(error, UncleanableSegment):
            self._mark(log, error)
        elif isinstance(error, FileNotFoundError) or is_pressure(error):
            logger.warning("The compaction of %s is tried again: %s", log.topic_partition, error)
        elif isinstance(error, OSError) and error.errno in _NO_ROOM:
            logger.error(
                "%s cannot be compacted, because the disk is full; it is tried again: %s",
                log.topic_partition,
                error,
            )
        elif isinstance(error, OSError):
            log.failed(error)
        else:
            self.uncleanable[log] = UncleanableMark(repr(error), None)
            logger.error(
                "%s is not compacted until the broker is restarted",
                log.topic_partition,
                exc_info=raised(failure),
            )

    def _mark(self, log: Log, error: UncleanableSegment) -> None:
        segment = next(log.segments.from_offset(error.offset))
        self.uncleanable[log] = UncleanableMark.of(segment, str(error))
        logger.error(
            "%s cannot be compacted (%d such logs): %s; the segment is examined, and the log is skipped "
            "until it has been repaired",
            log.topic_partition, len(self.uncleanable), error,
        )  # fmt: skip
        log.suspect_at(error.offset, str(error))

    @property
    def _backoff_s(self) -> float:
        return self._settings.current().backoff_ms / 1000

    def _ended(self, log: Log) -> None:
        if log in self.busy:
            del self.busy[log]
            self._turns.end(log, self._clock.seconds(), self.busy)
        self._searched.pop(log, None)
        if not self._is_stopped:
            self._alarm.set(0.0)

    def _pause(self, size: int) -> Deferred[None]:
        """Wait until `size` more bytes are within log.cleaner.io.max.bytes.per.second."""
        now_s = self._clock.seconds()
        self._free_s = max(now_s, self._free_s) + size / self._settings.current().io_bytes_per_second_max
        delay_s = self._free_s - now_s
        if delay_s < 0.001:
            return succeed(None)
        return pause(self._clock, delay_s)
