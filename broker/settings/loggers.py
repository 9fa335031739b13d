"""The levels of this broker's loggers, which clients may alter while it runs (KIP-412).

A level stays until the broker stops. As in Kafka, a logger without a level of its own has that of the logger
above it, `root` is above all, and levels are Kafka's: TRACE is DEBUG here, and FATAL is CRITICAL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from holdfast_log.broker.settings.alterations import Alteration
from holdfast_log.protocol.configs import ConfigOperation
from holdfast_log.protocol.errors import BrokerError, ErrorCode

ROOT = "root"
LEVELS: Mapping[str, int] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
"""Levels that a client may set, by Kafka's names."""

_SHOWN = 100
"""Characters of a client's text that an error repeats."""


class LoggerLevels:
    """The loggers below `root`, by default those of this process."""

    def __init__(self, root: logging.Logger | None = None) -> None:
        self._root = root or logging.getLogger()

    def names(self) -> list[str]:
        """Every logger that there is, `root` first."""
        return [ROOT, *sorted(self._root.manager.loggerDict)]

    def levels(self, wanted: Iterable[str] | None = None) -> dict[str, str]:
        """The level in force of each logger, of these or (None) of all. Names that no logger has are left
        out."""
        chosen = None if wanted is None else set(wanted)
        return {
            name: level_name(self._logger(name).getEffectiveLevel())
            for name in self.names()
            if chosen is None or name in chosen
        }

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool) -> None:
        """Set levels, or have loggers follow the one above. Raises BrokerError, and then has changed
        nothing: INVALID_CONFIG for a level or logger that does not exist, INVALID_REQUEST otherwise."""
        known = set(self.names())
        levels = {each.name: _level_of(each, known) for each in alterations}
        if len(levels) != len(alterations):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names a logger more than once")
        if not validate_only:
            for name, level in levels.items():
                self._logger(name).setLevel(level)

    def _logger(self, name: str) -> logging.Logger:
        return self._root if name == ROOT else self._root.manager.getLogger(name)


def level_name(level: int) -> str:
    """Kafka's name of a level; for one in between, that of the next lower."""
    for name, number in LEVELS.items():
        if level >= number:
            return name
    return "DEBUG"


def _level_of(alteration: Alteration, known: set[str]) -> int:
    name, value = alteration.name, alteration.value
    if name not in known:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {name[:_SHOWN]!r} does not exist!")
    match alteration.operation:
        case ConfigOperation.DELETE:
            if name == ROOT:
                reason = f"Removing the log level of the {ROOT} logger is not allowed: set another one"
                raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
            return logging.NOTSET
        case ConfigOperation.SET:
            level = LEVELS.get(value or "")
            if level is None:
                raise BrokerError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {(value or '')[:_SHOWN]!r} as it is not a "
                    f"supported log level. Valid log levels are {', '.join(LEVELS)}",
                )
            return level
    operation = alteration.operation.name
    reason = f"{operation} operation is not allowed for the BROKER_LOGGER resource: a level is no list"
    raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
