"""The settings of ownership: one row each, and the values derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clients.settings import Setting, SettingType
from protocol.errors import ErrorCode, error_for

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "own.names.max",
        SettingType.INT,
        100_000,
        "Maximum number of names whose owners this broker keeps. Partitions are not counted.",
        minimum=0,
    ),
    Setting(
        "own.ping.timeout.ms",
        SettingType.INT,
        3_000,
        "Time within which an owner has to renew, once another client wants its resource.",
        minimum=1,
    ),
    Setting(
        "own.release.grace.ms",
        SettingType.INT,
        0,
        "Time for which an owner keeps its resources after its connection has closed, to resume them.",
        minimum=0,
    ),
    Setting(
        "own.session.timeout.max.ms",
        SettingType.INT,
        3_600_000,
        "Longest session timeout that an owner may request.",
        minimum=1,
    ),
    Setting(
        "own.session.timeout.min.ms",
        SettingType.INT,
        100,
        "Shortest session timeout that an owner may request.",
        minimum=1,
    ),
    Setting(
        "own.waiters.max",
        SettingType.INT,
        1_000,
        "Maximum number of claims that wait for one resource.",
        minimum=0,
    ),
)


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """The shortest and the longest session timeout that a client may request, in ms."""

    min_ms: int
    max_ms: int

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> SessionTimeouts:
        return cls(settings["own.session.timeout.min.ms"], settings["own.session.timeout.max.ms"])

    def check(self, session_timeout_ms: int) -> None:
        """Raises BrokerError INVALID_SESSION_TIMEOUT for a timeout outside of these."""
        if not self.min_ms <= session_timeout_ms <= self.max_ms:
            raise error_for(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"a session timeout of {session_timeout_ms} ms is not between "
                f"own.session.timeout.min.ms={self.min_ms} and own.session.timeout.max.ms={self.max_ms}",
            )


@dataclass(frozen=True, slots=True)
class OwnershipSettings:
    """Values of `own.release.grace.ms`, `own.ping.timeout.ms`, `own.waiters.max` and `own.names.max`."""

    release_grace_ms: int = 0
    ping_timeout_ms: int = 3000
    waiters_max: int = 1000
    names_max: int = 100_000

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OwnershipSettings:
        return cls(
            settings["own.release.grace.ms"],
            settings["own.ping.timeout.ms"],
            settings["own.waiters.max"],
            settings["own.names.max"],
        )
