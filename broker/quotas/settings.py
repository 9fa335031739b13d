"""The settings of client quotas, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType

_NO_LIMIT = 2**63 - 1

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "quota.entities.max",
        SettingType.INT,
        10_000,
        "Maximum number of users, client ids, pairs of both, and IP addresses together that have quotas of "
        "their own. Every broker keeps all of them in memory. Quotas of one more are refused with "
        "POLICY_VIOLATION; those that exist can be altered and removed.",
        minimum=0,
    ),
    Setting(
        "quota.producer.default",
        SettingType.LONG,
        _NO_LIMIT,
        "Bytes per second that each client id may produce to this broker if no quota in ZooKeeper applies to "
        "it. The default is no limit.",
        minimum=1,
    ),
    Setting(
        "quota.consumer.default",
        SettingType.LONG,
        _NO_LIMIT,
        "Bytes per second that each client id may fetch from this broker if no quota in ZooKeeper applies to "
        "it. The default is no limit.",
        minimum=1,
    ),
    Setting(
        "quota.controller.mutation.default",
        SettingType.LONG,
        1_000,
        "Partitions per second that each client id may create and delete through this broker if no "
        "`controller_mutation_rate` in ZooKeeper applies to it.",
        minimum=1,
    ),
    Setting(
        "quota.window.num",
        SettingType.INT,
        30,
        "Number of windows over which the use of a quota is measured (Kafka: 11). A client that has used "
        "less than its quota in these windows may use the rest at once.",
        minimum=1,
    ),
    Setting(
        "quota.window.size.seconds",
        SettingType.INT,
        1,
        "Length in seconds of each window over which the use of a quota is measured. A client without a "
        "past may use the quota of one window at once.",
        minimum=1,
    ),
    Setting(
        "controller.quota.window.num",
        SettingType.INT,
        11,
        "Number of windows whose quota of created and deleted partitions a client may use at once.",
        minimum=1,
    ),
    Setting(
        "controller.quota.window.size.seconds",
        SettingType.INT,
        1,
        "Length in seconds of each window of the quota of created and deleted partitions.",
        minimum=1,
    ),
)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """Default quotas in bytes per second, and the windows over which use is measured."""

    producer_default: Annotated[int, "quota.producer.default"] = _NO_LIMIT
    consumer_default: Annotated[int, "quota.consumer.default"] = _NO_LIMIT
    mutation_default: Annotated[int, "quota.controller.mutation.default"] = 1_000
    windows: Annotated[int, "quota.window.num"] = 30
    window_size_seconds: Annotated[int, "quota.window.size.seconds"] = 1
    controller_windows: Annotated[int, "controller.quota.window.num"] = 11
    controller_window_size_seconds: Annotated[int, "controller.quota.window.size.seconds"] = 1
    entities_max: Annotated[int, "quota.entities.max"] = 10_000


def default_limit(bytes_per_second: int) -> float | None:
    """The limit that a default stands for; None if it is no limit."""
    return None if bytes_per_second == _NO_LIMIT else float(bytes_per_second)
