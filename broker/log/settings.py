"""Settings of logs: a row each for topics, the same as a broker's defaults, and `LogSettings` of them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clients.settings import Setting, SettingError, Settings, SettingType
from protocol.batches import Compression

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

KEEP_PRODUCERS_CODEC = "producer"
_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
COMPRESSION_TYPES = (*_CODECS, KEEP_PRODUCERS_CODEC)
"""Values of `compression.type`."""


def _cleanup_policy(value: tuple[str, ...]) -> None:
    if not value:
        raise ValueError("at least one of compact, delete")


def _throttled_replicas(value: tuple[str, ...]) -> None:
    if value not in ((), ("*",), ("none",)) and not all(map(_THROTTLED_REPLICA.fullmatch, value)):
        raise ValueError("*, or partition:broker for each replica, such as 0:1,1:2")


_THROTTLED_REPLICA = re.compile(r"\d+:\d+")

TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "check.expected.offsets", SettingType.BOOLEAN, False,
        "Whether the base offset of a producer's batch is the offset at which it expects the log to end; -1 "
        "expects nothing. A batch that expects another offset is refused, with its whole request (KIP-27). "
        "Clients that do not know of this send 0.",
    ),
    Setting(
        "cleanup.policy", SettingType.LIST, ("delete",),
        "What happens to old segments: delete removes them by time and size, compact keeps the last record "
        "of every key; both may be given.",
        choices=("delete", "compact"), check=_cleanup_policy,
    ),
    Setting(
        "compression.type", SettingType.STRING, "producer",
        "Codec in which the leader stores producers' batches. producer keeps each batch as it was sent; with "
        "any other value the leader recompresses the batches that arrive in another codec, which takes its "
        "processor time.",
        choices=COMPRESSION_TYPES,
    ),
    Setting(
        "delete.retention.ms", SettingType.LONG, _DAY_MS,
        "How long a compacted topic keeps a tombstone, and so how long a reader that starts at the beginning "
        "has to see it.",
        minimum=0,
    ),
    Setting(
        "file.delete.delay.ms", SettingType.LONG, 60_000,
        "How long a deleted file stays on disk, for those who still read it.",
        minimum=0,
    ),
    Setting(
        "flush.before.ack", SettingType.BOOLEAN, False,
        "Acknowledge a record only after an fsync, which all writers that wait share.",
    ),
    Setting(
        "flush.messages", SettingType.LONG, _LONG_MAX,
        "Offsets written since the last fsync that bring about the next one.",
        minimum=1,
    ),
    Setting(
        "flush.ms", SettingType.LONG, _LONG_MAX,
        "The longest time a record stays without an fsync.",
        minimum=0,
    ),
    Setting(
        "follower.replication.throttled.replicas", SettingType.LIST, (),
        "The replicas, as partition:broker or * for all, that count in follower.replication.throttled.rate "
        "where they fetch.",
        check=_throttled_replicas,
    ),
    Setting(
        "index.interval.bytes", SettingType.INT, 4096,
        "Bytes of log between two entries of the offset index.",
        minimum=0,
    ),
    Setting(
        "leader.replication.throttled.replicas", SettingType.LIST, (),
        "The replicas, as partition:broker or * for all, that count in leader.replication.throttled.rate "
        "where they lead.",
        check=_throttled_replicas,
    ),
    Setting(
        "max.compaction.lag.ms", SettingType.LONG, _LONG_MAX,
        "The longest time a record of a compacted topic may stay uncompacted.",
        minimum=1,
    ),
    Setting(
        "max.message.bytes", SettingType.INT, 1_048_588,
        "The largest record batch that is taken, after compression.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.after.max.ms", SettingType.LONG, _LONG_MAX,
        "How far a record's timestamp may lie after the broker's clock, where producers set it.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.before.max.ms", SettingType.LONG, _LONG_MAX,
        "How far a record's timestamp may lie before the broker's clock, where producers set it.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.type", SettingType.STRING, "CreateTime",
        "Whether a record's timestamp is the producer's or the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "min.cleanable.dirty.ratio", SettingType.DOUBLE, 0.5,
        "The uncompacted share of a log from which on it is worth compacting.",
        minimum=0, maximum=1,
    ),
    Setting(
        "min.compaction.lag.ms", SettingType.LONG, 0,
        "How long a record is safe from compaction.",
        minimum=0,
    ),
    Setting(
        "min.insync.replicas", SettingType.INT, 1,
        "In-sync replicas without which writes with acks=all are refused.",
        minimum=1,
    ),
    Setting(
        "retention.bytes", SettingType.LONG, -1,
        "Bytes of a partition beyond which its oldest segments are deleted; -1: no bound.",
        minimum=-1,
    ),
    Setting(
        "retention.ms", SettingType.LONG, 7 * _DAY_MS,
        "Age from which on a segment is deleted; -1: never.",
        minimum=-1,
    ),
    Setting(
        "segment.bytes", SettingType.INT, 1 << 30,
        "Size at which a segment is closed and the next one begun.",
        minimum=14,
    ),
    Setting(
        "segment.index.bytes", SettingType.INT, 10 << 20,
        "The largest size of an index file; a full index closes its segment.",
        minimum=4,
    ),
    Setting(
        "segment.jitter.ms", SettingType.LONG, 0,
        "At most this much is taken from segment.ms, at random, so that segments do not all roll at once.",
        minimum=0,
    ),
    Setting(
        "segment.ms", SettingType.LONG, 7 * _DAY_MS,
        "Age at which a segment is closed even though it is not full.",
        minimum=1,
    ),
    Setting(
        "single.reader", SettingType.STRING, "claimed",
        "Who may fetch: with claimed, others of a group in which somebody owns the partition to read it may "
        "not; with required nobody may who does not own it in some group; off checks nothing.",
        choices=("off", "claimed", "required"),
    ),
    Setting(
        "single.writer", SettingType.STRING, "claimed",
        "Who may write: with claimed, nobody else while somebody owns the partition to write it; with "
        "required nobody who does not own it; off checks nothing.",
        choices=("off", "claimed", "required"),
    ),
    Setting(
        "unclean.leader.election.enable", SettingType.BOOLEAN, False,
        "Whether a replica that is not in sync may lead when no other is left: available again, at the price "
        "of committed records.",
    ),
)  # fmt: skip
"""The rows of a topic's own settings, by Kafka's names."""

_SYNONYMS = {
    "check.expected.offsets": "log.check.expected.offsets",
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}

_TOPICS_ALONE = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")

BROKER_SYNONYM: Mapping[str, str] = {
    row.name: _SYNONYMS.get(row.name, row.name) for row in TOPIC_SETTINGS if row.name not in _TOPICS_ALONE
}
"""Topic setting → the broker's setting that is its default, for those that have one."""

_COARSER = {
    "retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.hours", _HOUR_MS),),
    "segment.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
}


def _check_directories(paths: tuple[str, ...] | None) -> None:
    if paths is None:
        return
    if not paths:
        raise ValueError("at least one directory")
    whole = [os.path.abspath(path) for path in paths]
    if len(set(whole)) != len(whole):
        raise ValueError("each directory once")


_OWN_BROKER_SETTINGS = (
    Setting(
        "log.dirs", SettingType.LIST, None,
        "Directories in which partitions are kept, each on a disk of its own; unset: log.dir.",
        check=_check_directories,
    ),
    Setting("log.dir", SettingType.STRING, "/tmp/holdfast-logs", "The directory, where log.dirs is not set."),
    Setting(
        "num.recovery.threads.per.data.dir", SettingType.INT, 1,
        "Threads for each log directory that load and recover logs at the start.",
        minimum=1,
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms", SettingType.INT, 60_000,
        "How often recovery points are written down.",
        minimum=1,
    ),
    Setting(
        "log.flush.scheduler.interval.ms", SettingType.LONG, 1000,
        "How often the broker looks for logs whose flush.ms has passed.",
        minimum=1,
    ),
    Setting(
        "producer.id.expiration.ms", SettingType.INT, _DAY_MS,
        "How long after its last write a producer's sequence is remembered.",
        minimum=1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms", SettingType.INT, 600_000,
        "How often forgotten producers are looked for.",
        minimum=1,
    ),
    Setting(
        "log.retention.minutes", SettingType.INT, None,
        "log.retention.ms in minutes, where that is not set; -1: never.", minimum=-1,
    ),
    Setting(
        "log.retention.hours", SettingType.INT, 168,
        "log.retention.ms in hours, where neither that nor minutes is set; -1: never.", minimum=-1,
    ),
    Setting("log.roll.hours", SettingType.INT, 168, "log.roll.ms in hours, if that is not set.", minimum=1),
    Setting(
        "log.roll.jitter.hours", SettingType.INT, 0,
        "log.roll.jitter.ms in hours, where that is not set.", minimum=0,
    ),
)  # fmt: skip


def _as_broker_row(row: Setting) -> Setting:
    name = BROKER_SYNONYM[row.name]
    # What can also be given in coarser units must tell "not set" from its default.
    default = None if row.name in _COARSER else row.default
    doc = row.doc if name == row.name else f"{row.doc} The default of the topic setting {row.name}."
    return dataclasses.replace(row, name=name, default=default, doc=doc, dynamic=True)


BROKER_SETTINGS: tuple[Setting, ...] = (
    *_OWN_BROKER_SETTINGS,
    *(_as_broker_row(row) for row in TOPIC_SETTINGS if row.name in BROKER_SYNONYM),
)
"""The log's rows among a broker's settings."""


def topic_defaults(broker: Mapping[str, Any]) -> dict[str, Any]:
    """Topic setting → its value where the topic sets none, from the broker's checked settings."""
    return {row.name: _default_of(row, broker) for row in TOPIC_SETTINGS}


def _default_of(row: Setting, broker: Mapping[str, Any]) -> Any:
    if row.name not in BROKER_SYNONYM:
        return row.default
    value = broker.get(BROKER_SYNONYM[row.name])
    if value is not None:
        return value
    for name, unit_ms in _COARSER.get(row.name, ()):
        coarse = broker.get(name)
        if coarse is not None:
            return -1 if coarse < 0 else coarse * unit_ms
    return row.default


def log_directories(broker: Mapping[str, Any]) -> tuple[str, ...]:
    """The directories that `log.dirs`, or else `log.dir`, names."""
    return tuple(broker["log.dirs"] or (broker["log.dir"],))


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The checked settings of one log; each field is the topic setting of that name."""

    check_expected_offsets: bool = False
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_before_ack: bool = False
    flush_messages: int = _LONG_MAX
    flush_ms: int = _LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = _LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = _LONG_MAX
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    single_reader: str = "claimed"
    single_writer: str = "claimed"
    unclean_leader_election_enable: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> LogSettings:
        """From a topic's own settings, by dotted name, over the broker's `topic_defaults`.

        Names that no row has are left out: a topic's znode may hold settings of other software. Raises
        `SettingError` for a value that is not allowed.
        """
        known = {row.name: values[row.name] for row in TOPIC_SETTINGS if row.name in values}
        settings = Settings(TOPIC_SETTINGS, {**(defaults or {}), **known})
        checked = cls(**{_field_name(name): value for name, value in settings.items()})
        if checked.min_compaction_lag_ms > checked.max_compaction_lag_ms:
            raise SettingError(
                f"min.compaction.lag.ms={checked.min_compaction_lag_ms} is not allowed: expected at most "
                f"max.compaction.lag.ms, which is {checked.max_compaction_lag_ms}"
            )
        return checked

    @property
    def codec(self) -> Compression | None:
        """Codec to which producers' batches are recompressed; None where they are stored as sent."""
        return _CODECS.get(self.compression_type)

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy


def _field_name(name: str) -> str:
    return name.replace(".", "_")
