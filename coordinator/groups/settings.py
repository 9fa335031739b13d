"""The settings of the group coordinator, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from holdfast_log.coordinator.groups.offsets import STEP


class MigrationPolicy(enum.Enum):
    """Whether groups with members change their protocol (`group.consumer.migration.policy`): from the classic
    one to that of KIP-848 (upgrade) when a member of the latter joins, and back (downgrade) when the last of
    these is gone."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and delays of the group coordinator; the defaults of delays are Kafka's.

    Each field is the setting of the same name: `min_session_timeout_ms` is `group.min.session.timeout.ms`,
    `offsets_retention_ms` is `offsets.retention.minutes` in milliseconds, `metadata_max_bytes` is
    `offset.metadata.max.bytes`, the `bytes_max` are `group.subscription.max.bytes`,
    `group.members.max.bytes` and `groups.members.max.bytes`, the `offsets_bytes_max` are
    `group.offsets.max.bytes` and `groups.offsets.max.bytes`. Those that begin with `consumer_` are the
    settings `group.consumer.…`, of groups of KIP-848.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 1_000
    subscription_bytes_max: int = 1 << 20
    """Maximum bytes of the subscriptions of one member, in all its protocols."""
    group_bytes_max: int = 16 << 20
    """Maximum bytes of the subscriptions of a group's members together, and of their assignments."""
    all_groups_bytes_max: int = 64 << 20
    """Maximum bytes of subscriptions and assignments of all groups of a broker."""
    metadata_max_bytes: int = 4_096
    group_offsets_bytes_max: int = 16 << 20
    """Maximum bytes of the committed offsets of a group, with their metadata."""
    all_offsets_bytes_max: int = 128 << 20
    """Maximum bytes of the committed offsets of all groups of a broker, with their metadata."""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_step: int = STEP
    """How many offsets are deleted, or counted, in a turn at most. Not a setting of users."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 1_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    new_member_join_timeout_ms: int = 5 * 60 * 1_000
    """Maximum wait of a new member's JoinGroup, a constant in Kafka; see `ClassicMember.is_new`."""

    def allows_session_timeout(self, session_timeout_ms: int) -> bool:
        return self.min_session_timeout_ms <= session_timeout_ms <= self.max_session_timeout_ms
