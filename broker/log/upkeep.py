"""What is done for the logs from time to time: checkpoints, flushes by age, producers forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from broker.log.manager import LogManager


@dataclass(frozen=True, slots=True)
class UpkeepIntervals:
    """Values of the settings of these names."""

    log_flush_scheduler_interval_ms: int = 1000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    producer_id_expiration_check_interval_ms: int = 600_000


class Upkeep:
    """The timers of a `LogManager`."""

    def __init__(self, logs: LogManager, clock: Any, intervals: UpkeepIntervals) -> None:
        self._calls = [
            (self._call(clock, logs.flush_due), intervals.log_flush_scheduler_interval_ms),
            (self._call(clock, logs.write_checkpoints), intervals.log_flush_offset_checkpoint_interval_ms),
            (self._call(clock, logs.expire_producers), intervals.producer_id_expiration_check_interval_ms),
        ]

    @staticmethod
    def _call(clock: Any, function: Callable[[], Deferred[None] | None]) -> LoopingCall:
        call = LoopingCall(function)
        call.clock = clock
        return call

    def start(self) -> None:
        for call, interval_ms in self._calls:
            call.start(interval_ms / 1000, now=False)

    def stop(self) -> None:
        for call, _ in self._calls:
            if call.running:
                call.stop()
