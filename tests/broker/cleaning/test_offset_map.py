"""The table of keys of the log cleaner."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.cleaning.offset_map import OffsetMap
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.protocol.compaction import SLOT_BYTES

PAGE_BYTES_MAX = 2 << 20
"""Size of the largest pages that the system may use."""


def resident_bytes() -> int:
    """Memory of this process that the system has really given to it."""
    fields = Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()
    return int(fields[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_new_table_keeps_nobody_waiting_until_its_memory_is_cleared() -> None:
    """Clearing 200 MB at once, with the GIL, takes 80 ms in which no client is served."""
    before = resident_bytes()
    table = OffsetMap((200 << 20) // SLOT_BYTES, 0.9).table
    assert resident_bytes() - before < 8 * PAGE_BYTES_MAX
    assert table.nbytes > 190 << 20
    assert table[:SLOT_BYTES] == table[-SLOT_BYTES:] == bytes(SLOT_BYTES)


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_table_takes_as_many_keys_as_there_are_offsets(count: int) -> None:
    found = OffsetMap.for_offsets(count, CleanerSettings())
    assert count <= found.key_count_max < found.table.nbytes // SLOT_BYTES


def test_threads_share_the_memory_of_all_tables() -> None:
    settings = CleanerSettings(threads=4, dedupe_buffer_size_bytes=4 << 20)
    assert OffsetMap.for_offsets(10**6, settings).table.nbytes <= 1 << 20


def test_a_log_is_read_in_small_pieces() -> None:
    """The thread that serves clients waits while the system reads or writes a piece."""
    assert CleanerSettings().piece_bytes == CleanerSettings(threads=4).piece_bytes == 128 << 10
    assert CleanerSettings(threads=8, io_buffer_size_bytes=256 << 10).piece_bytes == 32 << 10
