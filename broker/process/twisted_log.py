"""Twisted's own log, as records of the module `logging`: errors that nobody has handled, and warnings.

Without this Twisted prints them, with the texts of the errors as they are.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import (
    FilteringLogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    STDLibLogObserver,
    globalLogBeginner,
)

_LOGGER = "twisted"


def log_twisted() -> None:
    """Log what Twisted reports from now on, and what it has kept back so far. Call this once in a process."""
    # Any: the interfaces of Twisted are zope's, which mypy does not know.
    is_urgent: Any = LogLevelFilterPredicate(defaultLogLevel=LogLevel.warn)
    everything: Any = STDLibLogObserver(_LOGGER)
    urgent: Any = FilteringLogObserver(everything, [is_urgent])
    globalLogBeginner.beginLoggingTo([urgent], redirectStandardIO=False)
