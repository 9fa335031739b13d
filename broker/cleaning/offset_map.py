"""The last offset of each key in a part of a log, in a fixed buffer of 24 bytes a slot."""

from __future__ import annotations

import contextlib
import mmap

from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.protocol.compaction import SLOT_BYTES


def _zeros(size: int) -> memoryview:
    """So many zero bytes. The system clears them when they are first touched, which compiled loops do without
    the GIL: a bytearray of 100 MB keeps all threads waiting for 50 ms."""
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)  # Such pages are cleared, searched and given back sooner.
    if advice is not None:
        with contextlib.suppress(OSError):
            memory.madvise(advice)
    return memoryview(memory)


class OffsetMap:
    """A table for `protocol.compaction`. It takes `key_count_max` keys; the share of slots that stay free
    keeps look-ups short."""

    def __init__(self, slots: int, load_factor: float) -> None:
        slots = max(2, slots)
        self.table = _zeros(slots * SLOT_BYTES)
        self.key_count = 0
        self.key_count_max = max(1, min(slots - 1, int(slots * load_factor)))

    @classmethod
    def for_offsets(cls, count: int, settings: CleanerSettings) -> OffsetMap:
        """A map for `count` consecutive offsets; smaller if one thread's part of the buffer is."""
        load_factor = settings.io_buffer_load_factor
        slots_max = settings.dedupe_buffer_size_bytes // settings.threads // SLOT_BYTES
        return cls(min(slots_max, int(count / load_factor) + 2), load_factor)
