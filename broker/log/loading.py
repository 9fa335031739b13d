"""A log that is being opened: what its broker knows of it, and what has been found in its files so far."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast_log.broker.log.append_ids import AppendIdLimits
from holdfast_log.broker.log.checkpoints import topic_tag
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.epochs import LeaderEpochs
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.topic_partition import TopicPartition


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One log to open, with its offsets from the checkpoints of its directory. `tags` has the tag of each
    offset's entry, by the name of the field: if it is that of another topic, the offset does not count.

    `cut_short` is called, perhaps more than once, before more is removed from the log than a write that the
    end of a process interrupted, and when the log turns out to have lost its end. It may raise OSError."""

    partition: TopicPartition
    directory: str
    settings: LogSettings
    now_ms: int
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    is_clean: bool = False
    has_all_writes: bool = False
    """Whether nothing has been lost of what the last process wrote: the machine has run on since."""
    last_write_ms: int = -1
    """When a log of the directory was last written, in ms since the epoch; -1 if it is unknown."""
    cut_short: Callable[[], None] = _nothing
    topic_id: uuid.UUID | None = None
    producer_expiration_ms: int = 86_400_000
    append_id_limits: AppendIdLimits = field(default_factory=AppendIdLimits)
    tags: Mapping[str, str] = field(default_factory=dict)

    def of_topic(self, topic_id: uuid.UUID | None) -> LoadRequest:
        """The request without the offsets of an earlier topic of the same name."""
        foreign: Any = {name: 0 for name, tag in self.tags.items() if tag and tag != topic_tag(topic_id)}
        return replace(self, **foreign)


@dataclass(slots=True)
class Loading:
    """State of a log while it is being opened."""

    request: LoadRequest
    files: OpenFiles
    segments: list[Segment] = field(default_factory=list)
    swapped: set[int] = field(default_factory=set)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    begins_anew: bool = False
    is_cut_short: bool = False
    """Whether more was removed from the log's end than a write that the end of the process interrupted."""
    doubt: tuple[int, str] | None = None
    """The offset of a damaged batch that stays in the log, and why it is damaged."""
    has_gaps: bool = False
    """Whether offsets are missing between two batches of one file: compaction has removed them, whatever the
    topic's settings say now."""

    @property
    def disk(self) -> Disk:
        return self.files.disk

    def path(self, name: str) -> str:
        return os.path.join(self.request.directory, name)

    def cut_short(self) -> None:
        """Note that the log lacks records that an earlier process had. Call this before anything is removed:
        the next process would find a sound log that ends earlier, and not know what is missing."""
        self.is_cut_short = True
        self.request.cut_short()
