"""What a log reports to its manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast_log.broker.log.log import Log


def _ignore(log: Log) -> None: ...


def _ignore_failure(log: Log, error: OSError) -> None: ...


def _ignore_suspicion(log: Log, base_offset: int, why: str) -> None: ...


@dataclass(slots=True)
class LogEvents:
    """Callbacks of a log to its manager, each called with the log.

    `discard` removes files that were renamed to `.deleted`, after a delay; None removes them immediately.
    `start_moved`: a checkpoint must hold the new log start; then the callback calls `discard_before_start` of
    `broker.log.truncation`, because segments lie before the start. None removes them immediately.
    `flush_due`: a flush should begin. `unflushed`: the log was durable and no longer is.
    `recovery_point_lowered`: the checkpoint must hold the lower point before the log grows again; the
    callback calls `begin_settling` of `broker.log.truncation`, and `settled` once the checkpoint is durable.
    `pressed`: an operation was refused for lack of descriptors or memory. `suspected`: a read found content
    that no broker writes in the segment with this base offset, which should be examined. `keys_full`: the
    table of the index of keys should be written to a file. `keys_behind`: that index has to read records from
    the log again. `failed`: the log's directory cannot be used.
    """

    discard: Callable[[Log, list[str]], None] | None = None
    start_moved: Callable[[Log], None] | None = None
    flush_due: Callable[[Log], None] = _ignore
    unflushed: Callable[[Log], None] = _ignore
    recovery_point_lowered: Callable[[Log], None] = _ignore
    pressed: Callable[[Log, OSError], None] = _ignore_failure
    suspected: Callable[[Log, int, str], None] = _ignore_suspicion
    keys_full: Callable[[Log], None] = _ignore
    keys_behind: Callable[[Log], None] = _ignore
    failed: Callable[[Log, OSError], None] = _ignore_failure
