"""The settings of ownership, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.ownership.state import Terms
from clients.settings import Setting, SettingType

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "own.names.max",
        SettingType.INT,
        100_000,
        "How many names of applications this broker keeps the owners of. Partitions are not counted.",
        minimum=0,
    ),
    Setting(
        "own.ping.timeout.ms",
        SettingType.INT,
        3_000,
        "How soon an owner that waits for news has to show that it lives, once another wants what it has.",
        minimum=1,
    ),
    Setting(
        "own.release.grace.ms",
        SettingType.INT,
        0,
        "How long an owner keeps its resources without a connection, so that it can come back.",
        minimum=0,
    ),
    Setting(
        "own.session.timeout.max.ms",
        SettingType.INT,
        3_600_000,
        "The longest time that an owner may ask to be missed after.",
        minimum=1,
    ),
    Setting(
        "own.session.timeout.min.ms",
        SettingType.INT,
        100,
        "The shortest time that an owner may ask to be missed after.",
        minimum=1,
    ),
    Setting(
        "own.waiters.max",
        SettingType.INT,
        1_000,
        "How many may wait for one resource.",
        minimum=0,
    ),
)


def terms(settings: Mapping[str, Any]) -> Terms:
    """What of the settings the ownership table goes by."""
    return Terms(
        settings["own.release.grace.ms"],
        settings["own.ping.timeout.ms"],
        settings["own.waiters.max"],
        settings["own.names.max"],
    )
