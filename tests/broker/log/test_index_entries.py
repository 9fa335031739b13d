"""Index entries in memory: they take as much as in their file, and a check of a file takes no more."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.index import OffsetIndex, TimeIndex
from holdfast_log.broker.log.index_entries import offset_entries, time_entries
from holdfast_log.broker.log.open_files import OpenFiles

MANY = 200_000


def test_what_is_decoded_is_what_was_encoded_without_the_zeros_behind_it() -> None:
    chance = random.Random(1)
    for count in (0, 1, 2, 1023, 1024, 1025):
        offsets, times = offset_entries(), time_entries()
        for number in range(1, count + 1):
            offsets.append(number * 7, number * 900 + chance.randrange(9))
            times.append((1 << 40) + number, number * 7)
        assert offsets.encode() == b"".join(struct.pack(">ii", *pair) for pair in offsets)
        assert times.encode() == b"".join(struct.pack(">qi", *pair) for pair in times)
        assert list(offset_entries(offsets.encode() + bytes(803))) == list(offsets)
        assert list(time_entries(times.encode() + bytes(1205))) == list(times)
        assert times.last == (None if not count else times[-1])


def test_a_million_entries_take_as_many_bytes_as_their_file() -> None:
    tracemalloc.start()
    try:
        entries = time_entries()
        for number in range(MANY):
            entries.append((1 << 40) + number, number)
        size, _ = tracemalloc.get_traced_memory()
        assert size < 2 * 12 * MANY
        tracemalloc.reset_peak()
        assert len(time_entries(entries.encode())) == MANY
        _, peak = tracemalloc.get_traced_memory()
        assert peak - size < 6 * 12 * MANY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fault", [None, "descends", "beyond", "descends between two parts"])
def test_a_large_index_is_checked_in_little_memory(tmp_path: Path, fault: str | None) -> None:
    offsets, times = offset_entries(), time_entries()
    broken = {"descends": MANY // 2 + 5, "descends between two parts": 8192 * 3}.get(str(fault), -1)
    for number in range(1, MANY + 1):
        value = 1 if number - 1 == broken else number
        offsets.append(value, number * 1000)
        times.append(value + 5, number)
    files = OpenFiles(OsDisk())
    (tmp_path / "o").write_bytes(offsets.encode())
    (tmp_path / "t").write_bytes(times.encode())
    next_offset = MANY if fault == "beyond" else MANY + 1
    tracemalloc.start()
    try:
        index = OffsetIndex(files, str(tmp_path / "o"), 0, 1 << 30)
        of_times = TimeIndex(files, str(tmp_path / "t"), 0, 1 << 30)
        tracemalloc.reset_peak()
        assert index.is_sound(MANY * 1000 + 1, next_offset) == (fault is None)
        assert of_times.is_sound(next_offset) == (fault is None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert not index.is_sound(MANY * 1000, next_offset), "no batch begins at the log's end"


def test_indexes_without_entries_are_sound(tmp_path: Path) -> None:
    files = OpenFiles(OsDisk())
    (tmp_path / "o").write_bytes(b"")
    assert OffsetIndex(files, str(tmp_path / "o"), 5, 100).is_sound(0, 5)
    assert TimeIndex(files, str(tmp_path / "o"), 5, 100).is_sound(5)
