"""What a log tells of itself to whoever keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.log.log import Log


def _nothing(log: Log) -> None:
    """What is done where nobody listens."""


@dataclass(slots=True)
class LogEvents:
    """What a log tells its manager.

    `discard` removes files that were renamed to `.deleted`, when it sees fit; `flush_due`: a flush should
    begin; `unflushed`: all was durable, and is no more; `recovery_point_lowered`: the checkpoint must say so
    before the log goes on; `failed`: its directory cannot be used.
    """

    discard: Callable[[Log, list[str]], None] | None = None
    flush_due: Callable[[Log], None] = _nothing
    unflushed: Callable[[Log], None] = _nothing
    recovery_point_lowered: Callable[[Log], None] = _nothing
    failed: Callable[[Log, OSError], None] = field(default=lambda log, error: None)
