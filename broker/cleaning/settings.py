"""Settings of the log cleaner, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType

_PIECE_BYTES_MAX = 128 << 10
"""The system does not interrupt a read or a write of a page cache. With pieces of 512 KB the requests of
clients waited 1 ms for them."""
_UNLIMITED = 1.7976931348623157e308

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "log.cleaner.enable", SettingType.BOOLEAN, True,
        "Whether the broker compacts the logs of topics with cleanup.policy=compact, its own topic of group "
        "offsets among them. Without it they grow without bound.",
    ),
    Setting(
        "log.cleaner.threads", SettingType.INT, 1,
        "Maximum number of logs that the broker compacts at the same time.",
        minimum=1, dynamic=True,
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second", SettingType.DOUBLE, _UNLIMITED,
        "Maximum rate at which compaction reads and writes files, all logs together, in bytes per second.",
        minimum=1, dynamic=True,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size", SettingType.LONG, 128 << 20,
        "Memory in bytes for the tables of keys, all logs that are being compacted together. A key takes 24 "
        "bytes, divided by log.cleaner.io.buffer.load.factor. A log with more different keys since its last "
        "compaction is compacted in several passes, each of which copies the log.",
        minimum=1024, dynamic=True,
    ),
    Setting(
        "log.cleaner.io.buffer.size", SettingType.INT, 512 << 10,
        "Bytes that compaction reads from a file at a time, all logs that are being compacted together; at "
        "most 131072 bytes of one log, so that clients are served in between. A larger batch is read as a "
        "whole.",
        minimum=1024, dynamic=True,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor", SettingType.DOUBLE, 0.9,
        "Share of a table of keys that may be filled. A fuller table holds more keys, and finding one takes "
        "longer.",
        minimum=0.01, maximum=0.99, dynamic=True,
    ),
    Setting(
        "log.cleaner.backoff.ms", SettingType.LONG, 15_000,
        "Time in ms between two searches for a log to compact, while there is none.",
        minimum=1, dynamic=True,
    ),
)  # fmt: skip
"""Rows of the cleaner's settings."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """How many logs are compacted at once, with how much memory, and how fast."""

    is_enabled: Annotated[bool, "log.cleaner.enable"] = True
    threads: Annotated[int, "log.cleaner.threads"] = 1
    io_bytes_per_second_max: Annotated[float, "log.cleaner.io.max.bytes.per.second"] = _UNLIMITED
    dedupe_buffer_size_bytes: Annotated[int, "log.cleaner.dedupe.buffer.size"] = 128 << 20
    io_buffer_size_bytes: Annotated[int, "log.cleaner.io.buffer.size"] = 512 << 10
    io_buffer_load_factor: Annotated[float, "log.cleaner.io.buffer.load.factor"] = 0.9
    backoff_ms: Annotated[int, "log.cleaner.backoff.ms"] = 15_000

    @property
    def piece_bytes(self) -> int:
        """Number of bytes of a log that are read at a time."""
        return min(_PIECE_BYTES_MAX, self.io_buffer_size_bytes // self.threads)
