"""Names of a log's directories and files, as Kafka spells them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from holdfast_log.protocol.topic_partition import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"
DAMAGED = ".damaged"
"""A file beside a damaged segment; it says where the damage begins. Kafka ignores it."""
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LEADER_EPOCHS = "leader-epoch-checkpoint"
BEGUN_EPOCHS = "leader-epochs-begun"
"""The epochs of a log, written before the first batch of each. Kafka ignores it."""
MAPPED_OFFSET = "cleaner-mapped-offset"
"""Up to which offset compaction has looked at keys: see `broker.log.mapped_offset`. Kafka ignores it."""
PARTITION_METADATA = "partition.metadata"
MOVE_UNFINISHED = "move-unfinished"
"""In a log that was copied from another directory of its broker, which may still have it; not Kafka's."""

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
DIRECTORY_ID = ".holdfast-directory"
"""The id of a log directory. It distinguishes the right disk from an empty mount point."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUN = ".holdfast-run"

_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
_DIRECTORY = re.compile(r"([A-Za-z0-9._-]+)-([0-9]+)")
_FUTURE_DIRECTORY = re.compile(r"([A-Za-z0-9._-]+)-([0-9]+)\.[0-9a-f]{32}-future")
_PROCESS_DIRECTORY = re.compile(r"process\.([1-9][0-9]*)")
_OFFSET_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)(\.[a-z]+)?")


class OffsetFile(NamedTuple):
    """A file named after an offset: a segment's log, one of its indexes, or a snapshot."""

    offset: int
    kind: str
    marker: str
    """Suffix appended to the name: `.deleted`, `.cleaned`, `.swap`, or nothing."""


def parse_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None for any other name."""
    match = _DIRECTORY.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def shortened(partitions: Sequence[TopicPartition]) -> str:
    """The names of the first three partitions, and how many more there are, for one line of the log."""
    named = ", ".join(map(str, partitions[:3]))
    return f"{named} and {len(partitions) - 3} more partitions" if len(partitions) > 3 else named


def deleted_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    """Name of a deleted partition's directory until its files are removed."""
    # File systems allow names of 255 characters; Kafka shortens the name to fit.
    return f"{str(partition)[: 255 - 40]}.{unique.hex}-delete"


def stray_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    """Name of a directory whose partition this broker no longer has."""
    return f"{str(partition)[: 255 - 39]}.{unique.hex}-stray"


def future_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    """Name of the directory into which a log is copied that moves to another directory of its broker."""
    return f"{partition}.{unique.hex}-future"


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition of which an incomplete copy has this name; None for any other name."""
    match = _FUTURE_DIRECTORY.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def process_directory(number: int) -> str:
    """Name of the directory, in a log directory, of one of several brokers that share it
    (`broker.processes`). It is not that of a partition, so the other brokers leave it alone."""
    return f"process.{number}"


def parse_process_directory(name: str) -> int | None:
    """The number of the process whose directory has this name; None for any other name."""
    match = _PROCESS_DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def is_deleted_directory(name: str) -> bool:
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def offset_file(offset: int, kind: str) -> str:
    """`offset` in twenty digits, and the suffix."""
    return f"{offset:020d}{kind}"


def parse_offset_file(name: str) -> OffsetFile | None:
    match = _OFFSET_FILE.fullmatch(name)
    return OffsetFile(int(match[1]), match[2], match[3] or "") if match else None
