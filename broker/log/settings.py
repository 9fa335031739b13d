"""Settings of logs: `LogSettings`, which declares each topic setting once, and the broker settings, most of
which are the defaults of topic settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from holdfast_log.broker.log.decompression import MESSAGE_BYTES_MAX
from holdfast_log.broker.log.decompression import SETTINGS as DECOMPRESSION_SETTINGS
from holdfast_log.broker.log.own_settings import OWN_SETTINGS
from holdfast_log.clients.settings import Setting, SettingError, Settings, SettingType
from holdfast_log.coordinator.tools.directories import state_directory
from holdfast_log.protocol.batches import Compression

T = TypeVar("T")

_DECLARED = "setting"
"""Where the metadata of a field has its declaration."""
_SAME = ""
"""The name of a broker setting that is named like the topic setting."""
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

OFF, CLAIMED, REQUIRED = "off", "claimed", "required"
"""Values of `single.reader` and `single.writer`: all may, an owner keeps others out, only owners may."""


def _throttled_replicas(value: tuple[str, ...]) -> None:
    if value not in ((), ("*",), ("none",)) and not all(map(_THROTTLED_REPLICA.fullmatch, value)):
        raise ValueError("*, or partition:broker for each replica, such as 0:1,1:2")


_THROTTLED_REPLICA = re.compile(r"\d+:\d+")

_KINDS: Mapping[type, SettingType] = {
    bool: SettingType.BOOLEAN,
    int: SettingType.LONG,
    float: SettingType.DOUBLE,
    str: SettingType.STRING,
    tuple: SettingType.LIST,
}


@dataclass(frozen=True, slots=True)
class _Declaration:
    """A topic setting, as its field declares it. `broker` is the broker setting that is its default, None if
    there is none; `coarser` are broker settings in coarser units, each with its unit in ms, which count where
    that one is not set."""

    row: Setting
    broker: str | None
    coarser: tuple[tuple[str, int], ...] = ()


def _setting(
    default: T,
    doc: str,
    *,
    kind: SettingType | None = None,
    broker: str | None = _SAME,
    coarser: tuple[tuple[str, int], ...] = (),
    **row: Any,
) -> T:
    """The field of a topic setting: its default, its text, and what `Setting` takes besides. Without `kind`
    the setting has that of its default. The broker setting has the same name unless `broker` says
    otherwise."""
    kind = kind or _KINDS[type(default)]
    declared = _Declaration(Setting("", kind, default, doc, **row), broker, coarser)
    found: T = field(default=default, metadata={_DECLARED: declared})
    return found


class UsualLimits(NamedTuple):
    """What limits an append, by the names of `LogSettings`; `broker/replication/_usual_append.c` reads it."""

    batch_bytes_max: int
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    min_insync_replicas: int
    segment_bytes: int
    segment_age_ms_max: int
    flush_messages: int


@dataclass(frozen=True)
class LogSettings:
    """The checked settings of one log. Each field declares the topic setting of its name, with dots.

    What follows from several of them is computed once, because every append asks for it.
    """

    check_expected_offsets: bool = _setting(
        False,
        "Whether the leader compares a producer's base offset with the log end offset (KIP-27). If they "
        "differ, the leader refuses the whole produce request; a base offset of -1 is not compared. "
        "Clients that do not implement KIP-27 send 0.",
        broker="log.check.expected.offsets",
    )
    cleanup_policy: tuple[str, ...] = _setting(
        ("delete",),
        "How old records are removed: delete removes segments by age and size, compact keeps the last "
        "record of every key, and the broker refuses records without keys (INVALID_RECORD). Both may be "
        "set. Empty: all records are kept, and DeleteRecords is refused.",
        choices=("delete", "compact"),
        broker="log.cleanup.policy",
    )
    compression_type: str = _setting(
        "producer",
        "Codec in which the leader stores producers' batches. producer stores each batch as it was "
        "sent; with any other value the leader recompresses batches that arrive in another codec, at "
        "the cost of processor time.",
        choices=COMPRESSION_TYPES,
    )
    delete_retention_ms: int = _setting(
        _DAY_MS,
        "How long a compacted topic keeps a tombstone, in ms. A reader that starts at the log's "
        "beginning must reach the tombstone within this time.",
        minimum=0,
        broker="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = _setting(
        60_000,
        "Time in ms between the deletion of a segment and the removal of its files, which running "
        "fetches may still read.",
        minimum=0,
        broker="log.segment.delete.delay.ms",
    )
    flush_before_ack: bool = _setting(
        False,
        "Whether a record is acknowledged only after an fsync. All writers that wait share one fsync.",
    )
    flush_messages: int = _setting(
        _LONG_MAX,
        "Maximum number of records appended to a log before the broker starts an fsync.",
        minimum=1,
        broker="log.flush.interval.messages",
    )
    flush_ms: int = _setting(
        _LONG_MAX,
        "Maximum time in ms before the broker starts an fsync for a record.",
        minimum=0,
        broker="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _setting(
        (),
        "Replicas to which follower.replication.throttled.rate applies while they follow: a list of "
        "partition:broker, or * for all.",
        check=_throttled_replicas,
        broker=None,
    )
    index_interval_bytes: int = _setting(
        4096,
        "Bytes of log between two entries of a segment's offset index.",
        kind=SettingType.INT,
        minimum=0,
        broker="log.index.interval.bytes",
    )
    key_versions: bool = _setting(
        False,
        "Whether replicas keep an index of the last record of each key, so that producers can make a "
        "record depend on the last record with its key. Each replica then reads the keys of all "
        "records.",
    )
    key_versions_memory_bytes: int = _setting(
        8 << 20,
        "With key.versions, memory in bytes that one replica uses for the keys written last; older keys "
        "are in files beside the log. While a full table is being written to a file, twice as much is "
        "used.",
        kind=SettingType.INT,
        minimum=1,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _setting(
        (),
        "Replicas to which leader.replication.throttled.rate applies while they lead: a list of "
        "partition:broker, or * for all.",
        check=_throttled_replicas,
        broker=None,
    )
    max_compaction_lag_ms: int = _setting(
        _LONG_MAX,
        "Maximum time that a record of a compacted topic stays uncompacted, in ms.",
        minimum=1,
        broker="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = _setting(
        1_048_588,
        "Maximum size of a record batch as it is stored, after compression, in bytes. Values above "
        f"{MESSAGE_BYTES_MAX} count as this one. decompression.max.bytes limits the size before.",
        kind=SettingType.INT,
        minimum=0,
        broker="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = _setting(
        _HOUR_MS,
        "Maximum time by which a record's timestamp may be ahead of the broker's clock, in ms, where "
        "message.timestamp.type is CreateTime.",
        minimum=0,
        broker="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = _setting(
        _LONG_MAX,
        "Maximum time by which a record's timestamp may be behind the broker's clock, in ms, where "
        "message.timestamp.type is CreateTime.",
        minimum=0,
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_difference_max_ms: int = _setting(
        _LONG_MAX,
        "Value of message.timestamp.before.max.ms and message.timestamp.after.max.ms where these have "
        "their default, in ms. Kafka calls it deprecated.",
        minimum=0,
        broker="log.message.timestamp.difference.max.ms",
    )
    message_timestamp_type: str = _setting(
        "CreateTime",
        "Which timestamp a record has: the producer's (CreateTime) or the broker's at the append "
        "(LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = _setting(
        0.5,
        "Minimum share of a compacted topic's log that must be uncompacted before the log is compacted, "
        "from 0 to 1.",
        minimum=0,
        maximum=1,
        broker="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = _setting(
        0,
        "Minimum time before a record of a compacted topic may be compacted, in ms.",
        minimum=0,
        broker="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = _setting(
        1,
        "Minimum number of in-sync replicas for a write with acks=all. With fewer, the leader refuses "
        "the write, and consumers get new records only when enough replicas are in sync again "
        "(KIP-966).",
        kind=SettingType.INT,
        minimum=1,
    )
    retention_bytes: int = _setting(
        -1,
        "Size in bytes to which retention shortens a partition's log, where cleanup.policy includes "
        "delete: it removes the oldest segment while the log has at least this size without it. -1: no "
        "limit.",
        minimum=-1,
        broker="log.retention.bytes",
    )
    retention_ms: int = _setting(
        7 * _DAY_MS,
        "Maximum age of a segment in ms, where cleanup.policy includes delete. A segment is as old as "
        "its latest record, by the records' timestamps; an older segment is removed. -1: no limit.",
        minimum=-1,
        broker="log.retention.ms",
        coarser=(("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    )
    segment_bytes: int = _setting(
        1 << 30,
        "Maximum size of a segment in bytes; a batch that does not fit starts the next segment. A larger "
        "batch of a producer is refused (RECORD_LIST_TOO_LARGE).",
        kind=SettingType.INT,
        minimum=14,
        broker="log.segment.bytes",
    )
    segment_index_bytes: int = _setting(
        10 << 20,
        "Maximum size of a segment's index file in bytes; a full index starts the next segment.",
        kind=SettingType.INT,
        minimum=4,
        broker="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = _setting(
        0,
        "Maximum random reduction of segment.ms for each log, in ms, so that not all logs start a "
        "segment at once. No more than segment.ms counts.",
        minimum=0,
        broker="log.roll.jitter.ms",
        coarser=(("log.roll.jitter.hours", _HOUR_MS),),
    )
    segment_ms: int = _setting(
        7 * _DAY_MS,
        "Maximum time span of a segment in ms. The next append after it starts a new segment even if "
        "this one is not full.",
        minimum=1,
        broker="log.roll.ms",
        coarser=(("log.roll.hours", _HOUR_MS),),
    )
    single_reader: str = _setting(
        CLAIMED,
        "Which connections of a consumer group may fetch. claimed: while a member of the group owns a "
        "partition to read it, only that owner. required: only owners. off: every connection.",
        choices=(OFF, CLAIMED, REQUIRED),
    )
    single_writer: str = _setting(
        CLAIMED,
        "Which connections may produce. claimed: while a partition has an owner, only that owner. "
        "required: only owners. off: every connection.",
        choices=(OFF, CLAIMED, REQUIRED),
    )
    unclean_leader_election_enable: bool = _setting(
        False,
        "Whether an out-of-sync replica may become leader when no in-sync replica is available. The "
        "partition becomes available again, but committed records may be lost.",
    )

    @classmethod
    def of(cls, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> LogSettings:
        """From a topic's own settings, by dotted name, over the broker's `topic_defaults`.

        Unknown names are ignored: a topic's znode may hold settings of other software. Raises `SettingError`
        for a value that is not allowed.
        """
        known = {row.name: values[row.name] for row in TOPIC_SETTINGS if row.name in values}
        settings = Settings(TOPIC_SETTINGS, {**(defaults or {}), **known})
        checked = cls(**{name.replace(".", "_"): value for name, value in settings.items()})
        if checked.min_compaction_lag_ms > checked.max_compaction_lag_ms:
            raise SettingError(
                f"min.compaction.lag.ms={checked.min_compaction_lag_ms} is not allowed: expected at most "
                f"max.compaction.lag.ms, which is {checked.max_compaction_lag_ms}"
            )
        if checked.max_message_bytes > MESSAGE_BYTES_MAX:
            checked = dataclasses.replace(checked, max_message_bytes=MESSAGE_BYTES_MAX)
        difference_ms = checked.message_timestamp_difference_max_ms
        if checked.message_timestamp_before_max_ms == _LONG_MAX:
            checked = dataclasses.replace(checked, message_timestamp_before_max_ms=difference_ms)
        if difference_ms != _LONG_MAX and checked.message_timestamp_after_max_ms == _HOUR_MS:
            checked = dataclasses.replace(checked, message_timestamp_after_max_ms=difference_ms)
        return checked

    @cached_property
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

    @cached_property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def stores_as_sent(self) -> bool:
        """Whether producers' batches are stored with the timestamps, codec and records with which they were
        sent, and their records need no keys."""
        return (
            not self.uses_log_append_time
            and not self.is_compacted
            and self.compression_type == KEEP_PRODUCERS_CODEC
        )

    @cached_property
    def batch_bytes_max(self) -> int:
        """The size of the largest batch that a producer may send, and that fits in a segment."""
        return min(self.max_message_bytes, self.segment_bytes)

    @cached_property
    def usual_limits(self) -> UsualLimits | None:
        """The limits of appends to a log whose settings ask for nothing unusual; None if they do."""
        if (
            not self.stores_as_sent
            or self.check_expected_offsets
            or self.flush_before_ack
            or self.segment_jitter_ms
        ):
            return None
        return UsualLimits(
            self.batch_bytes_max,
            self.message_timestamp_before_max_ms,
            self.message_timestamp_after_max_ms,
            self.min_insync_replicas,
            self.segment_bytes,
            self.segment_age_ms_max,
            self.flush_messages,
        )

    @property
    def is_dense(self) -> bool:
        """Whether offsets have no gaps: only compaction removes records from the middle of a log."""
        return not self.is_compacted

    @cached_property
    def is_compacted(self) -> bool:
        """Whether compaction applies, which needs a key in every record."""
        return "compact" in self.cleanup_policy

    @cached_property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy


def _declarations() -> Iterator[_Declaration]:
    for each in fields(LogSettings):
        declared: _Declaration = each.metadata[_DECLARED]
        name = each.name.replace("_", ".")
        broker = name if declared.broker == _SAME else declared.broker
        yield _Declaration(dataclasses.replace(declared.row, name=name), broker, declared.coarser)


_DECLARATIONS = {declared.row.name: declared for declared in _declarations()}

TOPIC_SETTINGS: tuple[Setting, ...] = tuple(declared.row for declared in _DECLARATIONS.values())
"""Rows of the settings that a topic may have of its own, by Kafka's names."""

BROKER_SYNONYM: Mapping[str, str] = {
    name: declared.broker for name, declared in _DECLARATIONS.items() if declared.broker is not None
}
"""Topic setting → the broker setting that is its default, for the topic settings that have one."""


def _as_broker_row(row: Setting) -> Setting:
    name = BROKER_SYNONYM[row.name]
    # A setting with coarser units beside it must distinguish "not set" from its default.
    default = None if _DECLARATIONS[row.name].coarser else row.default
    doc = row.doc if name == row.name else f"{row.doc} Default of the topic setting {row.name}."
    return dataclasses.replace(row, name=name, default=default, doc=doc, dynamic=True)


BROKER_SETTINGS: tuple[Setting, ...] = (
    *OWN_SETTINGS,
    *DECOMPRESSION_SETTINGS,
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
    for name, unit_ms in _DECLARATIONS[row.name].coarser:
        coarse = broker.get(name)
        if coarse is not None:
            return -1 if coarse < 0 else coarse * unit_ms
    return row.default


def log_directories(broker: Mapping[str, Any]) -> tuple[str, ...]:
    """The directories named by `log.dirs`, or by `log.dir` where that is not set, or the user's own."""
    return tuple(broker["log.dirs"] or (broker["log.dir"] or str(state_directory() / "data"),))
