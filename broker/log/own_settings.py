"""Settings of a broker's logs that are no defaults of topic settings."""

from __future__ import annotations

import os

from holdfast_log.clients.settings import Setting, SettingType

_DAY_MS = 86_400_000


def _check_directories(paths: tuple[str, ...] | None) -> None:
    if paths is None:
        return
    if not paths:
        raise ValueError("at least one directory")
    whole = [os.path.abspath(path) for path in paths]
    if len(set(whole)) != len(whole):
        raise ValueError("each directory once")


OWN_SETTINGS = (
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
        "log.dir", SettingType.STRING, None,
        "Directory that holds partitions, used if log.dirs is not set. Unset: data in the directory of the "
        "user's state, which is $HOLDFAST_STATE, or var in a checkout, or $XDG_STATE_HOME/holdfast, or "
        "~/.local/state/holdfast.",
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
        "otherwise the oldest of the producer with the most ids, in the source (a principal, or an address) "
        "with the most. An append whose id it may have forgotten is refused with APPEND_ID_UNKNOWN. 0: no "
        "ids are remembered. Set it alike on all brokers, because any of them may lead.",
        minimum=0,
    ),
    Setting(
        "append.ids.max.per.producer", SettingType.INT, 5_000,
        "Maximum number of append ids that a broker remembers of each producer (producer id) of a partition. "
        "Beyond it the broker forgets the producer's own oldest.",
        minimum=1,
    ),
    Setting(
        "append.ids.total.max", SettingType.INT, 200_000,
        "Maximum number of append ids that a broker remembers of all partitions together, in about 500 bytes "
        "of memory each. Beyond it the broker forgets ids of the partition that has the most: the oldest of "
        "the producer with the most there, in the source with the most.",
        minimum=1,
    ),
    Setting(
        "key.versions.total.memory.bytes", SettingType.LONG, 256 << 20,
        "Memory in bytes that the keys of all replicas with key.versions use together. Half of "
        "it is guaranteed in equal shares, the other half is for the replicas that use it; none uses more "
        "than its topic's key.versions.memory.bytes. Older keys are in files.",
        minimum=1,
    ),
    Setting(
        "producer.ids.max", SettingType.INT, 400_000,
        "Maximum number of idempotent producers that a broker remembers of all partitions together, in about "
        "1 KB of memory each; a producer counts once for each partition. Beyond it the broker forgets the "
        "longest unused of the source (a principal, or an address) that has the most in the partition that "
        "has the most.",
        minimum=1,
    ),
    Setting(
        "producer.ids.max.per.source", SettingType.INT, 100_000,
        "Maximum number of idempotent producers, counted once for each partition, that a broker remembers of "
        "one source: a principal, or the address of clients that have not proved who they are. Beyond it the "
        "broker forgets the longest unused of the source's own.",
        minimum=1,
    ),
    Setting(
        "append.ids.retention.ms", SettingType.LONG, _DAY_MS,
        "Age in ms from which on an append id is forgotten first where a partition has more than "
        "append.ids.max. While there are fewer, none is forgotten for its age.",
        minimum=0,
    ),
    Setting(
        "log.segment.bytes.min", SettingType.INT, 1 << 20,
        "Minimum in bytes of `segment.bytes` that a client may set for a topic, and of `log.segment.bytes` "
        "that it may set for brokers (KIP-1030): each segment costs several files. The `log.segment.bytes` "
        "in this broker's file may be lower, and so may the value that a topic already has.",
        minimum=14,
    ),
    Setting(
        "log.segment.ms.min", SettingType.LONG, 1_000,
        "Minimum in ms of `segment.ms` and `max.compaction.lag.ms` that a client may set for a topic, and of "
        "`log.roll.ms` and `log.cleaner.max.compaction.lag.ms` that it may set for brokers: the next append "
        "after this time starts a segment. This broker's file may set less, and so may the value that a "
        "topic already has.",
        minimum=1,
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
"""Rows of these settings."""
