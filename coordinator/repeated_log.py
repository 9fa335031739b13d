"""Bounds the log lines that clients can provoke: one line per cause and interval, and a count of others."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast_log.coordinator.clock import Clock

INTERVAL_S = 10.0
CAUSES_MAX = 100
_OTHER = "other causes"
_SHOWN = 500
"""Maximum length of the text that a line with a count repeats."""


@dataclass(slots=True)
class _Cause:
    """`quiet_until_s` is the end of the interval of the last line; `left_out` counts the events since, and
    `last_text` is the latest of them."""

    quiet_until_s: float
    left_out: int = 0
    last_text: str = ""


class RepeatedLog:
    """Logs the first event of each cause at once. Later ones within `interval_s` seconds are only counted,
    and one line at the end of the interval has their number and the last one's text.

    `cause` is a plural phrase for the log, such as "requests of unknown APIs". It must not contain text from
    clients. At most `causes_max` causes are kept; events of further ones share one entry.
    """

    def __init__(self, clock: Clock, interval_s: float = INTERVAL_S, causes_max: int = CAUSES_MAX) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._causes_max = causes_max
        self._causes: dict[str, _Cause] = {}

    def __len__(self) -> int:
        """Number of causes that are kept."""
        return len(self._causes)

    def info(self, logger: logging.Logger, cause: str, text: str, *arguments: object) -> None:
        """Like `warning`, for what is no fault of the cluster."""
        self._log(logger, logging.INFO, cause, text, arguments)

    def warning(self, logger: logging.Logger, cause: str, text: str, *arguments: object) -> None:
        """Log a warning, unless one of the same cause was logged less than an interval ago."""
        self._log(logger, logging.WARNING, cause, text, arguments)

    def error(
        self,
        logger: logging.Logger,
        cause: str,
        text: str,
        *arguments: object,
        exc_info: BaseException | None = None,
    ) -> None:
        """Like `warning`, for an error, with the traceback of `exc_info`."""
        self._log(logger, logging.ERROR, cause, text, arguments, exc_info)

    def _log(
        self,
        logger: logging.Logger,
        level: int,
        cause: str,
        text: str,
        arguments: tuple[object, ...],
        exc_info: BaseException | None = None,
    ) -> None:
        """Log an event, or have a later line at `level` count it."""
        now_s = self._clock.seconds()
        known = self._causes.get(cause)
        if known is None:
            cause = self._make_room(cause, now_s)
            known = self._causes.get(cause)
        if known is None or (known.quiet_until_s <= now_s and not known.left_out):
            self._causes[cause] = _Cause(now_s + self._interval_s)
            logger.log(level, text, *arguments, exc_info=exc_info)
            return
        known.left_out += 1
        known.last_text = (text % arguments)[:_SHOWN]
        if known.left_out == 1:
            self._clock.callLater(
                known.quiet_until_s - now_s, self._count_out, _Counted(logger, level, cause), known
            )

    def _make_room(self, cause: str, now_s: float) -> str:
        """Forget causes without recent events. Returns the entry under which a new `cause` is kept."""
        if len(self._causes) < self._causes_max:
            return cause
        for name, known in list(self._causes.items()):
            if known.quiet_until_s <= now_s and not known.left_out:
                del self._causes[name]
        return cause if len(self._causes) < self._causes_max else _OTHER

    def _count_out(self, counted: _Counted, known: _Cause) -> None:
        left_out, known.left_out = known.left_out, 0
        known.quiet_until_s = self._clock.seconds() + self._interval_s
        counted.logger.log(
            counted.level,
            "Not logged one by one in the last %g s, %s: %d more, the last: %s",
            self._interval_s, counted.cause, left_out, known.last_text,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Counted:
    """Where and how the number of events left out is logged."""

    logger: logging.Logger
    level: int
    cause: str
