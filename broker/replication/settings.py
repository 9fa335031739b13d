"""The settings of replication, one row each, and the groups in which they are handed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from broker.setting_groups import settings_group
from clients.settings import Setting, SettingType

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "replica.lag.time.max.ms",
        SettingType.LONG,
        30_000,
        "A follower that has not caught up with its leader for so long leaves the in-sync set.",
        minimum=1,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        SettingType.LONG,
        5_000,
        "How often the high watermarks are written to disk.",
        minimum=1,
    ),
    Setting(
        "replica.socket.timeout.ms",
        SettingType.INT,
        30_000,
        "How long a request to another broker may take. At least `replica.fetch.wait.max.ms`.",
        minimum=1,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        SettingType.INT,
        500,
        "How long a follower's fetch waits at the leader for `replica.fetch.min.bytes`.",
        minimum=1,
    ),
    Setting(
        "replica.fetch.min.bytes",
        SettingType.INT,
        1,
        "How many bytes a follower's fetch waits for.",
        minimum=1,
    ),
    Setting(
        "replica.fetch.max.bytes",
        SettingType.INT,
        1024 * 1024,
        "How many bytes of one partition a follower fetches at once. A larger batch still passes.",
        minimum=0,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        SettingType.INT,
        10 * 1024 * 1024,
        "How many bytes of all partitions together a follower fetches at once. A larger batch still passes.",
        minimum=0,
    ),
    Setting(
        "replica.fetch.backoff.ms",
        SettingType.INT,
        1000,
        "How long a follower pauses after a failed fetch.",
        minimum=0,
    ),
    Setting(
        "num.replica.fetchers",
        SettingType.INT,
        1,
        "How many fetches a follower keeps open to each leader.",
        minimum=1,
    ),
    Setting(
        "leader.replication.throttled.rate",
        SettingType.LONG,
        2**63 - 1,
        "How many bytes a second this broker gives, as their leader, to the replicas that topics list in "
        "`leader.replication.throttled.replicas` and that are not in sync.",
        minimum=0,
        dynamic=True,
    ),
    Setting(
        "follower.replication.throttled.rate",
        SettingType.LONG,
        2**63 - 1,
        "How many bytes a second this broker fetches for the replicas that topics list in "
        "`follower.replication.throttled.replicas` and that are behind their leaders.",
        minimum=0,
        dynamic=True,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        SettingType.INT,
        1000,
        "How many fetch sessions there may be (KIP-227). Readers without one name all their partitions in "
        "every fetch. 0: there are none.",
        minimum=0,
    ),
    Setting(
        "max.incremental.fetch.session.cache.partitions",
        SettingType.INT,
        500_000,
        "How many partitions all fetch sessions together may hold.",
        minimum=0,
    ),
    Setting(
        "waiting.requests.max",
        SettingType.INT,
        1_000_000,
        "How many requests may wait at once for records or for replicas; one more is answered at once with "
        "what there is.",
        minimum=1,
    ),
)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """What the wiring of replication goes by."""

    fetchers: Annotated[int, "num.replica.fetchers"]
    timeout_ms: Annotated[int, "replica.socket.timeout.ms"]


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ThrottleRates:
    """Bytes a second that replicas out of sync are given, and may fetch."""

    leader: Annotated[int, "leader.replication.throttled.rate"]
    follower: Annotated[int, "follower.replication.throttled.rate"]
