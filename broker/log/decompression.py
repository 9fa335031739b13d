"""How much memory a broker gives to the records of one compressed batch. No topic setting raises it."""

from __future__ import annotations

DECOMPRESSED_BYTES_MAX = 64 << 20
"""Maximum decompressed size in bytes of a batch that a broker appends, compacts or searches."""

QUICK_BYTES_MAX = 8 << 20
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
