"""How much memory a broker gives to decompressed records. No topic setting raises it.

Workers decompress within `decompression.max.bytes` (`broker.decompression_budget`); the reactor's thread does
so for small batches only.
"""

from __future__ import annotations

from holdfast_log.clients.settings import Setting, SettingType

DECOMPRESSED_BYTES_MAX = 32 << 20
"""Maximum decompressed size in bytes of one batch, where no budget says otherwise."""

MESSAGE_BYTES_MAX = 64 << 20
"""Larger values of `max.message.bytes` count as this one: no frame that a broker takes is much larger."""

QUICK_BYTES_MAX = 4 << 20
"""Decompressed size in bytes up to which several batches may be examined at a time. Larger ones are examined
one after another, so that the broker never holds several of them in memory."""

INLINE_BYTES_MAX = 1 << 20
"""Bytes of records that the reactor's thread examines for one produce request. A worker examines the others.

The walk over 1 MiB takes at most 2 ms, with records of the smallest size. To hand a batch to a worker costs a
copy of it, two changes of threads, and the wait of the partition's later requests.
"""

INLINE_DECOMPRESSED_BYTES_MAX = 256 << 10
"""Bytes that the reactor's thread decompresses for one produce request. With gzip, the slowest codec, that
takes about 1 ms."""

SETTINGS = (
    Setting(
        "decompression.max.bytes", SettingType.LONG, 128 << 20,
        "Maximum bytes of records that the broker's workers have decompressed at a time: of batches that are "
        "produced, searched by time or compacted. One batch may have a quarter of it. A producer's larger "
        "batch is refused (INVALID_RECORD); one that is in a log already stays uncompacted, and is not "
        "searched.",
        minimum=16 << 20,
    ),
)  # fmt: skip
"""Rows of the settings of decompression."""
