"""Settings of logs: a row for each topic setting, the broker settings that are their defaults, and
`LogSettings`, their checked values."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_log.clients.settings import Setting, SettingError, Settings, SettingType
from holdfast_log.protocol.batches import Compression

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


def _throttled_replicas(value: tuple[str, ...]) -> None:
    if value not in ((), ("*",), ("none",)) and not all(map(_THROTTLED_REPLICA.fullmatch, value)):
        raise ValueError("*, or partition:broker for each replica, such as 0:1,1:2")


_THROTTLED_REPLICA = re.compile(r"\d+:\d+")

TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "check.expected.offsets", SettingType.BOOLEAN, False,
        "Whether the leader compares a producer's base offset with the log end offset (KIP-27). If they "
        "differ, the leader refuses the whole produce request; a base offset of -1 is not compared. Clients "
        "that do not implement KIP-27 send 0.",
    ),
    Setting(
        "cleanup.policy", SettingType.LIST, ("delete",),
        "How old records are removed: delete removes segments by age and size, compact keeps the last "
        "record of every key, and the broker refuses records without keys (INVALID_RECORD). Both may be set. "
        "Empty: all records are kept, and DeleteRecords is refused.",
        choices=("delete", "compact"),
    ),
    Setting(
        "compression.type", SettingType.STRING, "producer",
        "Codec in which the leader stores producers' batches. producer stores each batch as it was sent; "
        "with any other value the leader recompresses batches that arrive in another codec, at the cost of "
        "processor time.",
        choices=COMPRESSION_TYPES,
    ),
    Setting(
        "delete.retention.ms", SettingType.LONG, _DAY_MS,
        "How long a compacted topic keeps a tombstone, in ms. A reader that starts at the log's beginning "
        "must reach the tombstone within this time.",
        minimum=0,
    ),
    Setting(
        "file.delete.delay.ms", SettingType.LONG, 60_000,
        "Time in ms between the deletion of a segment and the removal of its files, which running fetches "
        "may still read.",
        minimum=0,
    ),
    Setting(
        "flush.before.ack", SettingType.BOOLEAN, False,
        "Whether a record is acknowledged only after an fsync. All writers that wait share one fsync.",
    ),
    Setting(
        "flush.messages", SettingType.LONG, _LONG_MAX,
        "Maximum number of records appended to a log before the broker starts an fsync.",
        minimum=1,
    ),
    Setting(
        "flush.ms", SettingType.LONG, _LONG_MAX,
        "Maximum time in ms before the broker starts an fsync for a record.",
        minimum=0,
    ),
    Setting(
        "follower.replication.throttled.replicas", SettingType.LIST, (),
        "Replicas to which follower.replication.throttled.rate applies while they follow: a list of "
        "partition:broker, or * for all.",
        check=_throttled_replicas,
    ),
    Setting(
        "index.interval.bytes", SettingType.INT, 4096,
        "Bytes of log between two entries of a segment's offset index.",
        minimum=0,
    ),
    Setting(
        "key.versions", SettingType.BOOLEAN, False,
        "Whether replicas keep an index of the last record of each key, so that producers can make a record "
        "depend on the last record with its key. Each replica then reads the keys of all records.",
    ),
    Setting(
        "key.versions.memory.bytes", SettingType.INT, 8 << 20,
        "With key.versions, memory in bytes that one replica uses for the keys written last; older keys are "
        "in files beside the log. While a full table is being written to a file, twice as much is used.",
        minimum=1,
    ),
    Setting(
        "leader.replication.throttled.replicas", SettingType.LIST, (),
        "Replicas to which leader.replication.throttled.rate applies while they lead: a list of "
        "partition:broker, or * for all.",
        check=_throttled_replicas,
    ),
    Setting(
        "max.compaction.lag.ms", SettingType.LONG, _LONG_MAX,
        "Maximum time that a record of a compacted topic stays uncompacted, in ms.",
        minimum=1,
    ),
    Setting(
        "max.message.bytes", SettingType.INT, 1_048_588,
        "Maximum size of a record batch as it is stored, after compression, in bytes.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.after.max.ms", SettingType.LONG, _LONG_MAX,
        "Maximum time by which a record's timestamp may be ahead of the broker's clock, in ms, where "
        "message.timestamp.type is CreateTime.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.before.max.ms", SettingType.LONG, _LONG_MAX,
        "Maximum time by which a record's timestamp may be behind the broker's clock, in ms, where "
        "message.timestamp.type is CreateTime.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.difference.max.ms", SettingType.LONG, _LONG_MAX,
        "Value of message.timestamp.before.max.ms and message.timestamp.after.max.ms where these have their "
        "default, in ms. Kafka calls it deprecated.",
        minimum=0,
    ),
    Setting(
        "message.timestamp.type", SettingType.STRING, "CreateTime",
        "Which timestamp a record has: the producer's (CreateTime) or the broker's at the append "
        "(LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "min.cleanable.dirty.ratio", SettingType.DOUBLE, 0.5,
        "Minimum share of a compacted topic's log that must be uncompacted before the log is compacted, "
        "from 0 to 1.",
        minimum=0, maximum=1,
    ),
    Setting(
        "min.compaction.lag.ms", SettingType.LONG, 0,
        "Minimum time before a record of a compacted topic may be compacted, in ms.",
        minimum=0,
    ),
    Setting(
        "min.insync.replicas", SettingType.INT, 1,
        "Minimum number of in-sync replicas for a write with acks=all. With fewer, the leader refuses the "
        "write, and consumers get new records only when enough replicas are in sync again (KIP-966).",
        minimum=1,
    ),
    Setting(
        "retention.bytes", SettingType.LONG, -1,
        "Size in bytes to which retention shortens a partition's log, where cleanup.policy includes delete: "
        "it removes the oldest segment while the log has at least this size without it. -1: no limit.",
        minimum=-1,
    ),
    Setting(
        "retention.ms", SettingType.LONG, 7 * _DAY_MS,
        "Maximum age of a segment in ms, where cleanup.policy includes delete. A segment is as old as its "
        "latest record, by the records' timestamps; an older segment is removed. -1: no limit.",
        minimum=-1,
    ),
    Setting(
        "segment.bytes", SettingType.INT, 1 << 30,
        "Maximum size of a segment in bytes; a batch that does not fit starts the next segment.",
        minimum=14,
    ),
    Setting(
        "segment.index.bytes", SettingType.INT, 10 << 20,
        "Maximum size of a segment's index file in bytes; a full index starts the next segment.",
        minimum=4,
    ),
    Setting(
        "segment.jitter.ms", SettingType.LONG, 0,
        "Maximum random reduction of segment.ms for each log, in ms, so that not all logs start a segment at "
        "once.",
        minimum=0,
    ),
    Setting(
        "segment.ms", SettingType.LONG, 7 * _DAY_MS,
        "Maximum time span of a segment in ms. The next append after it starts a new segment even if this "
        "one is not full.",
        minimum=1,
    ),
    Setting(
        "single.reader", SettingType.STRING, "claimed",
        "Which connections of a consumer group may fetch. claimed: while a member of the group owns a "
        "partition to read it, only that owner. required: only owners. off: every connection.",
        choices=("off", "claimed", "required"),
    ),
    Setting(
        "single.writer", SettingType.STRING, "claimed",
        "Which connections may produce. claimed: while a partition has an owner, only that owner. "
        "required: only owners. off: every connection.",
        choices=("off", "claimed", "required"),
    ),
    Setting(
        "unclean.leader.election.enable", SettingType.BOOLEAN, False,
        "Whether an out-of-sync replica may become leader when no in-sync replica is available. The "
        "partition becomes available again, but committed records may be lost.",
    ),
)  # fmt: skip
"""Rows of the settings that a topic may have of its own, by Kafka's names."""

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
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
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
"""Topic setting → the broker setting that is its default, for the topic settings that have one."""

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
        "Directories that hold partitions, each on its own disk. Unset: the directory in log.dir.",
        check=_check_directories,
    ),
    Setting(
        "log.dirs.lost", SettingType.LIST, (),
        "Ids of log directories that this broker has used and that are lost for good. At its start the "
        "broker logs the ids of missing directories, and keeps their replicas offline until it is restarted "
        "with the directories mounted or their ids named here. It copies the replicas of directories named "
        "here from other brokers. Remove the ids once these replicas are in sync.",
    ),
    Setting(
        "log.dir", SettingType.STRING, "/tmp/holdfast-logs",
        "Directory that holds partitions, used if log.dirs is not set.",
    ),
    Setting(
        "num.recovery.threads.per.data.dir", SettingType.INT, 1,
        "Number of threads for each log directory that load and recover logs when the broker starts.",
        minimum=1,
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms", SettingType.INT, 60_000,
        "Time between two checkpoints of the logs' recovery points and start offsets, in ms.",
        minimum=1,
    ),
    Setting(
        "log.flush.scheduler.interval.ms", SettingType.LONG, 1000,
        "Time between two checks for logs whose flush.ms has passed, in ms.",
        minimum=1,
    ),
    Setting(
        "log.scrub.interval.ms", SettingType.LONG, 7 * _DAY_MS,
        "Time in ms within which the broker reads every segment once and compares it with its checksums. The "
        "broker logs damage, and copies a damaged segment from the partition's leader. -1: the broker checks "
        "only segments in which a read found an error.",
        minimum=-1,
    ),
    Setting(
        "log.scrub.max.bytes.per.second", SettingType.LONG, 4 << 20,
        "Maximum rate at which the broker reads segments for log.scrub.interval.ms, in bytes per second.",
        minimum=1,
    ),
    Setting(
        "append.ids.max", SettingType.INT, 10_000,
        "Maximum number of append ids that a broker remembers of each partition, in about 500 bytes of "
        "memory each. A conditional append that repeats one of these ids gets the offset of the first. "
        "Beyond the maximum the broker forgets the oldest id if that is older than append.ids.retention.ms, "
        "otherwise the oldest of the producer with the most ids. An append whose id it may have forgotten is "
        "refused with APPEND_ID_UNKNOWN. 0: no ids are remembered. Set it alike on all brokers, because any "
        "of them may lead.",
        minimum=0,
    ),
    Setting(
        "append.ids.max.per.producer", SettingType.INT, 5_000,
        "Maximum number of append ids that a broker remembers of each producer (producer id) of a partition. "
        "Beyond it the broker forgets the producer's own oldest.",
        minimum=1,
    ),
    Setting(
        "append.ids.retention.ms", SettingType.LONG, _DAY_MS,
        "Age in ms from which on an append id is forgotten first where a partition has more than "
        "append.ids.max. While there are fewer, none is forgotten for its age.",
        minimum=0,
    ),
    Setting(
        "producer.id.expiration.ms", SettingType.INT, _DAY_MS,
        "Time in ms after a producer's last write for which a log remembers its sequence numbers.",
        minimum=1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms", SettingType.INT, 600_000,
        "Time in ms between two removals of producers that producer.id.expiration.ms has expired.",
        minimum=1,
    ),
    Setting(
        "log.retention.check.interval.ms", SettingType.LONG, 300_000,
        "Time in ms between two checks for segments that retention.ms, retention.bytes or DeleteRecords no "
        "longer keep.",
        minimum=1,
    ),
    Setting(
        "log.retention.minutes", SettingType.INT, None,
        "Maximum age of a segment in minutes, used if log.retention.ms is not set. -1: no limit.",
        minimum=-1,
    ),
    Setting(
        "log.retention.hours", SettingType.INT, 168,
        "Maximum age of a segment in hours, used if neither log.retention.ms nor log.retention.minutes is "
        "set. -1: no limit.",
        minimum=-1,
    ),
    Setting(
        "log.roll.hours", SettingType.INT, 168,
        "Maximum time span of a segment in hours, used if log.roll.ms is not set.",
        minimum=1,
    ),
    Setting(
        "log.roll.jitter.hours", SettingType.INT, 0,
        "Maximum random reduction of log.roll.ms for each log, in hours, used if log.roll.jitter.ms is not "
        "set.",
        minimum=0,
    ),
)  # fmt: skip


def _as_broker_row(row: Setting) -> Setting:
    name = BROKER_SYNONYM[row.name]
    # A setting with coarser units beside it must distinguish "not set" from its default.
    default = None if row.name in _COARSER else row.default
    doc = row.doc if name == row.name else f"{row.doc} Default of the topic setting {row.name}."
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
    """The directories named by `log.dirs`, or by `log.dir` where that is not set."""
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
    key_versions: bool = False
    key_versions_memory_bytes: int = 8 << 20
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = _LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = _LONG_MAX
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_difference_max_ms: int = _LONG_MAX
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

        Unknown names are ignored: a topic's znode may hold settings of other software. Raises `SettingError`
        for a value that is not allowed.
        """
        known = {row.name: values[row.name] for row in TOPIC_SETTINGS if row.name in values}
        settings = Settings(TOPIC_SETTINGS, {**(defaults or {}), **known})
        checked = cls(**{_field_name(name): value for name, value in settings.items()})
        if checked.min_compaction_lag_ms > checked.max_compaction_lag_ms:
            raise SettingError(
                f"min.compaction.lag.ms={checked.min_compaction_lag_ms} is not allowed: expected at most "
                f"max.compaction.lag.ms, which is {checked.max_compaction_lag_ms}"
            )
        difference_ms = checked.message_timestamp_difference_max_ms
        if checked.message_timestamp_before_max_ms == _LONG_MAX:
            checked = dataclasses.replace(checked, message_timestamp_before_max_ms=difference_ms)
        if checked.message_timestamp_after_max_ms == _LONG_MAX:
            checked = dataclasses.replace(checked, message_timestamp_after_max_ms=difference_ms)
        return checked

    @property
    def segment_age_ms_max(self) -> int:
        """Maximum time span of a segment in ms. A record in the active segment cannot be compacted, so
        max.compaction.lag.ms limits the span of a compacted log's segments."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def codec(self) -> Compression | None:
        """Codec to which producers' batches are recompressed; None where they are stored as sent."""
        return _CODECS.get(self.compression_type)

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def is_dense(self) -> bool:
        """Whether offsets have no gaps: only compaction removes records from the middle of a log."""
        return not self.is_compacted

    @property
    def is_compacted(self) -> bool:
        """Whether compaction applies, which needs a key in every record."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy


def _field_name(name: str) -> str:
    return name.replace(".", "_")
