"""The settings of consumer groups and their offsets, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingError, SettingType
from holdfast_log.coordinator.groups.consumer_assignors import load_assignors
from holdfast_log.coordinator.groups.settings import GroupSettings, MigrationPolicy
from holdfast_log.protocol.batches import Compression

_MINUTE_MS = 60_000

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "group.min.session.timeout.ms",
        SettingType.INT,
        6_000,
        "Shortest session timeout in ms that a group member may request. A shorter timeout detects dead "
        "members sooner, but needs more heartbeats.",
        minimum=1,
    ),
    Setting(
        "group.max.session.timeout.ms",
        SettingType.INT,
        1_800_000,
        "Longest session timeout in ms that a group member may request.",
        minimum=1,
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        SettingType.INT,
        3_000,
        "Time in ms that an empty group waits for further members after each member that joins, before it "
        "assigns partitions for the first time.",
        minimum=0,
    ),
    Setting(
        "group.max.size",
        SettingType.INT,
        1_000,
        "Maximum number of members in a group. Further members are refused with GROUP_MAX_SIZE_REACHED.",
        minimum=1,
    ),
    Setting(
        "group.subscription.max.bytes",
        SettingType.INT,
        1024 * 1024,
        "Maximum bytes of the subscriptions of one member, in all its protocols. A member with more is "
        "refused with GROUP_MAX_SIZE_REACHED.",
        minimum=1,
    ),
    Setting(
        "group.members.max.bytes",
        SettingType.LONG,
        16 * 1024 * 1024,
        "Maximum bytes of the subscriptions of all members of a group, and of their assignments; of a group "
        "whose partitions the server assigns, of its topics and members' names. Further members and topics "
        "are refused with GROUP_MAX_SIZE_REACHED.",
        minimum=1,
    ),
    Setting(
        "groups.members.max.bytes",
        SettingType.LONG,
        64 * 1024 * 1024,
        "Maximum bytes of the subscriptions and assignments of all groups that this broker coordinates, "
        "counted as for `group.members.max.bytes`. Further members and topics are refused with "
        "GROUP_MAX_SIZE_REACHED.",
        minimum=1,
    ),
    Setting(
        "group.claim.timeout.ms",
        SettingType.INT,
        1_000,
        "Maximum time in ms that a group with single readers withholds an assignment while partition leaders "
        "have not accepted the new readers. After it members get their partitions, and wait at the leaders "
        "instead. Should be well below the members' session timeouts.",
        minimum=0,
    ),
    Setting(
        "group.coordinator.rebalance.protocols",
        SettingType.LIST,
        ("classic", "consumer"),
        "The protocols of groups that this broker speaks. `classic` has to be among them. With `consumer` it "
        "announces and answers ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), which clients use "
        "when their `group.protocol` is `consumer`. Without it existing groups of that protocol stay, but "
        "their members are removed as their sessions end.",
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        SettingType.INT,
        45_000,
        "Time in ms after which a member of a consumer group (KIP-848) is removed if it sends no heartbeat.",
        minimum=1,
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        SettingType.INT,
        45_000,
        "Shortest `group.consumer.session.timeout.ms` in ms with which a broker starts.",
        minimum=1,
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        SettingType.INT,
        60_000,
        "Longest `group.consumer.session.timeout.ms` in ms with which a broker starts.",
        minimum=1,
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        SettingType.INT,
        5_000,
        "Time in ms between two heartbeats of a member of a consumer group (KIP-848). Members learn it from "
        "the broker. It has to be below the session timeout; a shorter one moves partitions sooner.",
        minimum=1,
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        SettingType.INT,
        5_000,
        "Shortest `group.consumer.heartbeat.interval.ms` in ms with which a broker starts.",
        minimum=1,
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        SettingType.INT,
        15_000,
        "Longest `group.consumer.heartbeat.interval.ms` in ms with which a broker starts.",
        minimum=1,
    ),
    Setting(
        "group.consumer.max.size",
        SettingType.INT,
        1_000,
        "Maximum number of members in a consumer group (KIP-848). Further members are refused with "
        "GROUP_MAX_SIZE_REACHED.",
        minimum=1,
    ),
    Setting(
        "group.consumer.assignors",
        SettingType.LIST,
        ("uniform", "range"),
        "What shares out the partitions of consumer groups (KIP-848): `uniform`, `range`, or "
        "`module:function` for one of your own, which members ask for by the function's name. The first is "
        "for groups whose members ask for none.",
    ),
    Setting(
        "group.consumer.migration.policy",
        SettingType.STRING,
        MigrationPolicy.BIDIRECTIONAL.value,
        "Whether groups with members change their protocol: from the classic one to that of KIP-848 when a "
        "consumer with `group.protocol=consumer` joins (`upgrade`), back when the last such consumer is gone "
        "(`downgrade`), both (`bidirectional`) or neither (`disabled`). Groups without members always do.",
        choices=tuple(policy.value for policy in MigrationPolicy),
    ),
    Setting(
        "offset.metadata.max.bytes",
        SettingType.INT,
        4_096,
        "Maximum bytes of the metadata of a committed offset.",
        minimum=0,
    ),
    Setting(
        "group.offsets.max.bytes",
        SettingType.LONG,
        16 * 1024 * 1024,
        "Maximum bytes in memory of the committed offsets of a group: their metadata, 300 for each, and 800 "
        "for the group. "
        "Further ones are refused with OFFSET_METADATA_TOO_LARGE; what makes them no larger is accepted.",
        minimum=1,
    ),
    Setting(
        "groups.offsets.max.bytes",
        SettingType.LONG,
        128 * 1024 * 1024,
        "Maximum bytes in memory of the committed offsets of all groups that this broker coordinates, "
        "counted as for `group.offsets.max.bytes`. "
        "Further ones are refused with OFFSET_METADATA_TOO_LARGE; what makes them no larger is accepted.",
        minimum=1,
    ),
    Setting(
        "offsets.retention.minutes",
        SettingType.INT,
        7 * 24 * 60,
        "Time in minutes for which committed offsets are kept after the group's last member has left, or "
        "after the commit if the group never had members.",
        minimum=1,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        SettingType.LONG,
        600_000,
        "Time in ms between two searches for committed offsets past `offsets.retention.minutes`.",
        minimum=1,
    ),
    Setting(
        "offsets.commit.timeout.ms",
        SettingType.INT,
        5_000,
        "Maximum time in ms for a commit, or another change of a group, to reach all in-sync replicas. After "
        "it the client gets COORDINATOR_NOT_AVAILABLE.",
        minimum=1,
    ),
    Setting(
        "offsets.load.buffer.size",
        SettingType.INT,
        5 * 1024 * 1024,
        "Maximum bytes of `__consumer_offsets` that a broker reads at once when it becomes the coordinator "
        "of groups. A larger batch is still read.",
        minimum=1,
    ),
    Setting(
        "offsets.topic.num.partitions",
        SettingType.INT,
        50,
        "Number of partitions with which `__consumer_offsets` is created. It cannot be changed afterwards.",
        minimum=1,
        maximum=100_000,
    ),
    Setting(
        "offsets.topic.replication.factor",
        SettingType.INT,
        3,
        "Number of replicas with which `__consumer_offsets` is created. While there are fewer brokers it is "
        "not created, and requests of groups are refused with COORDINATOR_NOT_AVAILABLE.",
        minimum=1,
        maximum=2**15 - 1,
    ),
    Setting(
        "offsets.topic.segment.bytes",
        SettingType.INT,
        100 * 1024 * 1024,
        "The `segment.bytes`, in bytes, with which `__consumer_offsets` is created: small, so that the topic "
        "can be compacted early and loaded fast.",
        minimum=14,
    ),
    Setting(
        "offsets.topic.compression.codec",
        SettingType.INT,
        Compression.NONE.value,
        "Codec of the batches that a coordinator writes to `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, "
        "3 lz4, 4 zstd.",
        minimum=min(Compression),
        maximum=max(Compression),
    ),
)


def check(settings: Mapping[str, Any]) -> None:
    """Check that the settings do not contradict each other. Raises `SettingError`."""
    shortest_ms, longest_ms = (settings[f"group.{end}.session.timeout.ms"] for end in ("min", "max"))
    if longest_ms < shortest_ms:
        raise SettingError(
            f"group.max.session.timeout.ms={longest_ms} is not allowed: expected at least {shortest_ms} "
            "(group.min.session.timeout.ms)"
        )

    _check_consumer_groups(settings)


def _check_consumer_groups(settings: Mapping[str, Any]) -> None:
    for what in ("session.timeout", "heartbeat.interval"):
        name = f"group.consumer.{what}.ms"
        shortest_ms, longest_ms = (settings[f"group.consumer.{end}.{what}.ms"] for end in ("min", "max"))
        if not shortest_ms <= settings[name] <= longest_ms:
            raise SettingError(
                f"{name}={settings[name]} is not allowed: expected {shortest_ms} to {longest_ms} "
                f"(group.consumer.min.{what}.ms, group.consumer.max.{what}.ms)"
            )
    session_ms = settings["group.consumer.session.timeout.ms"]
    if settings["group.consumer.heartbeat.interval.ms"] >= session_ms:
        raise SettingError(
            "group.consumer.heartbeat.interval.ms is not allowed: expected less than "
            f"group.consumer.session.timeout.ms={session_ms}"
        )
    protocols = settings["group.coordinator.rebalance.protocols"]
    if "classic" not in protocols or not {"classic", "consumer"}.issuperset(protocols):
        raise SettingError(
            f"group.coordinator.rebalance.protocols={','.join(protocols)} is not allowed: expected classic "
            "or classic,consumer"
        )
    try:
        load_assignors(settings["group.consumer.assignors"])
    except ValueError as error:
        raise SettingError(f"group.consumer.assignors is not allowed: {error}") from None


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class OffsetsTopicSettings:
    """Settings with which `__consumer_offsets` is created."""

    partitions: Annotated[int, "offsets.topic.num.partitions"]
    replication_factor: Annotated[int, "offsets.topic.replication.factor"]
    segment_bytes: Annotated[int, "offsets.topic.segment.bytes"]


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class PartitionLogSettings:
    """Settings for writing `__consumer_offsets`, and for reading it in a new coordinator."""

    compression: Annotated[int, "offsets.topic.compression.codec"]
    load_bytes: Annotated[int, "offsets.load.buffer.size"]

    @property
    def codec(self) -> Compression:
        return Compression(self.compression)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class CoordinatorTimeouts:
    """Maximum times for the replication of a commit, and for leaders to accept readers' claims."""

    commit_timeout_ms: Annotated[int, "offsets.commit.timeout.ms"]
    claim_timeout_ms: Annotated[int, "group.claim.timeout.ms"]


def group_settings(settings: Mapping[str, Any]) -> GroupSettings:
    """The settings of the group coordinator."""
    return GroupSettings(
        min_session_timeout_ms=settings["group.min.session.timeout.ms"],
        max_session_timeout_ms=settings["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=settings["group.initial.rebalance.delay.ms"],
        max_size=settings["group.max.size"],
        subscription_bytes_max=settings["group.subscription.max.bytes"],
        group_bytes_max=settings["group.members.max.bytes"],
        all_groups_bytes_max=settings["groups.members.max.bytes"],
        group_offsets_bytes_max=settings["group.offsets.max.bytes"],
        all_offsets_bytes_max=settings["groups.offsets.max.bytes"],
        metadata_max_bytes=settings["offset.metadata.max.bytes"],
        offsets_retention_ms=settings["offsets.retention.minutes"] * _MINUTE_MS,
        consumer_session_timeout_ms=settings["group.consumer.session.timeout.ms"],
        consumer_heartbeat_interval_ms=settings["group.consumer.heartbeat.interval.ms"],
        consumer_max_size=settings["group.consumer.max.size"],
        consumer_assignors=tuple(settings["group.consumer.assignors"]),
        consumer_migration_policy=MigrationPolicy(settings["group.consumer.migration.policy"]),
    )
