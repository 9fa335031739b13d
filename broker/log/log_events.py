"""What a log reports to its manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

AnyLog = TypeVar("AnyLog")
"""The class of the logs, `broker.log.log.Log`, which imports this module."""


def _ignore(log: object) -> None: ...


def _ignore_failure(log: object, error: OSError) -> None: ...


def _ignore_suspicion(log: object, base_offset: int, why: str) -> None: ...


@dataclass(frozen=True, slots=True)
class LogEvents(Generic[AnyLog]):
    """Callbacks of a log to its manager, each called with the log. All logs of a directory share one object.

    `discard` removes files that were renamed to `.deleted`, after a delay; None removes them immediately.
    `start_moved`: a checkpoint must hold the new log start; then the callback calls `discard_before_start` of
    `broker.log.truncation`, because segments may lie before the start. With None there is no checkpoint: the
    start counts as durable, and the segments are removed immediately.
    `flush_due`: a flush should begin. `unflushed`: the log was durable and no longer is. `indexed`: the
    indexes of the active segment have entries that are only in memory.
    `recovery_point_lowered`: the checkpoint must hold the lower point before the log grows again, and an
    emptied log must not keep its mapped offset; the callback calls `begin_settling` of
    `broker.log.truncation`, and `settled` once the checkpoint is durable.
    `pressed`: an operation was refused for lack of descriptors or memory. `suspected`: a read found content
    that no broker writes in the segment with this base offset, which should be examined. `keys_full`: the
    table of the index of keys should be written to a file. `keys_behind`: that index has to read records from
    the log again. `failed`: the log's directory cannot be used.
    """

    discard: Callable[[AnyLog, list[str]], None] | None = None
    start_moved: Callable[[AnyLog], None] | None = None
    flush_due: Callable[[AnyLog], None] = _ignore
    unflushed: Callable[[AnyLog], None] = _ignore
    indexed: Callable[[AnyLog], None] = _ignore
    recovery_point_lowered: Callable[[AnyLog], None] = _ignore
    pressed: Callable[[AnyLog, OSError], None] = _ignore_failure
    suspected: Callable[[AnyLog, int, str], None] = _ignore_suspicion
    keys_full: Callable[[AnyLog], None] = _ignore
    keys_behind: Callable[[AnyLog], None] = _ignore
    failed: Callable[[AnyLog, OSError], None] = _ignore_failure
