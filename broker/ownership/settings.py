"""The settings of ownership: one row each, and the values derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType
from holdfast_log.protocol.errors import ErrorCode, error_for

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "own.names.max",
        SettingType.INT,
        100_000,
        "Maximum number of names that this broker keeps, with and without an owner. To make room for others "
        "it forgets names that have been free for longer than own.names.retention.ms, those free for longest "
        "first; if there are none, claims of further names are refused. Partitions are not counted.",
        minimum=0,
    ),
    Setting(
        "own.names.retention.ms",
        SettingType.INT,
        600_000,
        "Shortest time for which a name without an owner is kept: after its owner has left, and after this "
        "broker has begun to decide about it. The generations of a name that was forgotten begin at 1 again; "
        "its tokens rise.",
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
        "own.records.per.source.percentage",
        SettingType.INT,
        50,
        "How much of own.records.total.bytes, less what the records of all others take, the resources of one "
        "source may use: of a principal, or of an address whose clients have none. So one source never takes "
        "all, however many names it claims. A source with more is refused further resources with "
        "POLICY_VIOLATION; beyond half of it, what it is granted keeps no past grants. 100 lets a single "
        "application use all.",
        minimum=1,
        maximum=100,
    ),
    Setting(
        "own.records.total.bytes",
        SettingType.LONG,
        16 * 1024 * 1024,
        "Maximum bytes of the records of what is owned at this broker, names and partitions, free ones "
        "included: about 700 for each, and more for owners with long names. ZooKeeper has the records of all "
        "brokers in memory. To make room the broker forgets free names as with own.names.max; then claims of "
        "further resources are refused, and those of others keep no past grants. Raise it together with the "
        "heap of ZooKeeper.",
        minimum=0,
    ),
    Setting(
        "own.release.grace.ms",
        SettingType.INT,
        0,
        "Time for which an owner keeps its resources after its connection has closed, to resume them. "
        "Strangers, and claims that name no generation, wait as long after a crash of the owner. Afterwards "
        "it may still resume, until another claim is granted or a stranger has written.",
        minimum=0,
    ),
    Setting(
        "own.resources.total.max",
        SettingType.INT,
        500_000,
        "Maximum number of resources that all connections of this broker together own, share or wait for; a "
        "resource counts once for each connection. A claim of one more is refused, until others are released "
        "or their connections close.",
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
    Setting(
        "own.waiters.total.max",
        SettingType.INT,
        100_000,
        "Maximum number of claims that wait at this broker, for all resources together. A claim that would "
        "wait beyond it is refused.",
        minimum=0,
    ),
)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """The shortest and the longest session timeout that a client may request, in ms."""

    min_ms: Annotated[int, "own.session.timeout.min.ms"]
    max_ms: Annotated[int, "own.session.timeout.max.ms"]

    def check(self, session_timeout_ms: int) -> None:
        """Raises BrokerError INVALID_SESSION_TIMEOUT for a timeout outside of these."""
        if not self.min_ms <= session_timeout_ms <= self.max_ms:
            raise error_for(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"a session timeout of {session_timeout_ms} ms is not between "
                f"own.session.timeout.min.ms={self.min_ms} and own.session.timeout.max.ms={self.max_ms}",
            )


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class OwnershipSettings:
    """The bounds and deadlines of the ownership table."""

    release_grace_ms: Annotated[int, "own.release.grace.ms"] = 0
    ping_timeout_ms: Annotated[int, "own.ping.timeout.ms"] = 3000
    waiters_max: Annotated[int, "own.waiters.max"] = 1000
    names_max: Annotated[int, "own.names.max"] = 100_000
    names_retention_ms: Annotated[int, "own.names.retention.ms"] = 600_000
    waiters_total_max: Annotated[int, "own.waiters.total.max"] = 100_000
    resources_total_max: Annotated[int, "own.resources.total.max"] = 500_000
    records_bytes_max: Annotated[int, "own.records.total.bytes"] = 16 * 1024 * 1024
    records_source_percentage: Annotated[int, "own.records.per.source.percentage"] = 50
