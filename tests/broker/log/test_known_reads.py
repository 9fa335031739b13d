"""Many readers of a log: what one of them has found is not looked for again, and yet checked again."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from holdfast_log.broker.log import known_reads
from holdfast_log.broker.log import log as log_module
from holdfast_log.broker.log.known_reads import KnownRead, KnownReads
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.reading import LogRead
from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.disk import SimDisk, SimFile
from tests.models.logs import append, new_log, sim_disk

BATCHES = 60
LIMIT = 300


class Reads:
    """A log whose batches have two records each, and the number of times that its files were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk: SimDisk = sim_disk()
        self.log: Log = new_log(self.disk, segment_bytes=4000, index_interval_bytes=100)
        for number in range(BATCHES):
            append(self.log, number, number)
        # All that is read here counts as written long ago.
        monkeypatch.setattr("holdfast_log.broker.log.segment._FRESH_BYTES", 0)
        self.count = 0
        pread = SimFile.pread

        def counted(file: SimFile, length: int, offset: int) -> bytes:
            self.count += 1
            return pread(file, length, offset)

        monkeypatch.setattr(SimFile, "pread", counted)

    def read(self, offset: int, max_bytes: int = LIMIT, upper_offset: int | None = None) -> list[int]:
        """The offsets of the batches that a read finds."""
        upper = self.log.log_end_offset if upper_offset is None else upper_offset
        read = self.log.read(offset, max_bytes, upper_offset=upper)
        if read.slice is None:
            return []
        piece = read.slice
        data = memoryview(piece.file._open_inode().data)[piece.offset : piece.offset + piece.length]
        headers = whole_batches(data)
        assert headers[-1].next_offset == read.next_offset and headers[-1].end == len(data)
        return [header.base_offset for header in headers]


pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def test_many_readers_in_different_places_find_what_the_first_one_has_found(reads: Reads) -> None:
    places = range(0, 2 * BATCHES - 10, 2)
    found = [reads.read(offset) for offset in places]
    assert sum(map(len, found)) > 1.8 * len(found)
    assert reads.count
    reads.count = 0
    for _ in range(5):
        assert [reads.read(offset) for offset in places] == found
    assert reads.count == 0


def test_the_headers_are_checked_again_after_some_reads(reads: Reads) -> None:
    found = reads.read(40)
    checked = 0
    for _ in range(170):
        reads.count = 0
        assert reads.read(40) == found
        checked += bool(reads.count)
    assert checked == 10


def test_a_changed_offset_is_found_soon_although_readers_have_seen_the_batch(reads: Reads) -> None:
    reads.read(0)
    segment = reads.log.segments[0]
    reads.disk.rewrite(segment.path, 5, 2)
    with pytest.raises(BrokerError) as refused:
        for _ in range(17):
            reads.read(0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_append_and_a_high_watermark_change_nothing_of_a_full_read(reads: Reads) -> None:
    found = reads.read(4)
    assert reads.read(4, upper_offset=6) == [4]
    assert reads.read(4, upper_offset=8) == found == [4, 6]
    append(reads.log, 1, 1)
    assert reads.read(4) == found


def test_a_read_without_a_whole_batch_does_not_get_that_of_another(reads: Reads) -> None:
    assert reads.read(4, 1) == [4]
    log = reads.log
    assert log.read(4, 1, upper_offset=log.log_end_offset, min_one_batch=False).slice is None


def test_nothing_of_a_truncated_log_is_remembered(reads: Reads) -> None:
    last = reads.log.segments.active.base_offset
    assert reads.read(last) == [last, last + 2]
    truncate_to(reads.log, last + 2, now_ms=0)
    append(reads.log, 1)
    append(reads.log, 2)
    assert reads.read(last) == [last, last + 2, last + 3]
    assert reads.read(last + 2) == [last + 2, last + 3]
    truncate_to(reads.log, last, now_ms=0)
    append(reads.log, *range(9))
    assert reads.read(last, 1) == [last]
    assert reads.log.log_end_offset == last + 9


def test_reads_below_a_high_watermark_at_the_end_of_an_append_read_no_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = Reads(monkeypatch)
    monkeypatch.setattr("holdfast_log.broker.log.segment._FRESH_BYTES", 1 << 20)
    end = reads.log.log_end_offset
    assert reads.read(end - 8, 10_000, upper_offset=end - 4) == [end - 8, end - 6]
    assert reads.read(end - 6, 10_000, upper_offset=end - 2) == [end - 6, end - 4]
    assert reads.count == 0


def test_the_number_of_remembered_reads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_reads, "_CAPACITY", 3)
    known = KnownReads()
    content = object()

    def remembered() -> Iterator[int]:
        return (offset for offset in range(10) if known.find(content, offset, 1) is not None)

    for offset in range(10):
        known.remember(content, offset, 1, KnownRead(0, 1, offset, is_full=True))
    assert list(remembered()) == [7, 8, 9] and len(known) == 3
    assert known.find(object(), 9, 1) is None


class Counted:
    """Counts what the compiled function has found."""

    def __init__(self, compiled: ModuleType) -> None:
        self._compiled = compiled
        self.found = 0

    def find(self, *arguments: Any) -> LogRead | None:
        read: LogRead | None = self._compiled.find(*arguments)
        self.found += read is not None
        return read


def test_reads_in_any_order_find_the_same_compiled_and_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logs are asked for the same, among truncations and appends; one of them asks compiled code."""
    compiled = log_module._again
    if compiled is None:
        pytest.skip("the extensions were not compiled")
    counted = Counted(compiled)
    logs = {None: new_log(sim_disk(), segment_bytes=4000), counted: new_log(sim_disk(), segment_bytes=4000)}
    monkeypatch.setattr("holdfast_log.broker.log.segment._FRESH_BYTES", 0)
    draw = random.Random(7)
    for number in range(600):
        end = logs[counted].log_end_offset
        values = [draw.randrange(9) for _ in range(draw.randrange(1, 4))]
        cut = draw.randrange(end + 1) if number % 97 == 96 else end
        arguments = draw.randrange(max(1, min(end, 12))), draw.choice([1, 200, 300, 5000])
        options = {
            "upper_offset": draw.choice([end, end, draw.randrange(end + 1)]),
            "min_one_batch": draw.random() < 0.8,
            "skips_empty": draw.random() < 0.5,
        }
        found = []
        for again, log in logs.items():
            monkeypatch.setattr(log_module, "_again", again)
            if number % 97 == 96:
                truncate_to(log, cut, now_ms=0)
            if number < 40 or number % 30 == 0:
                append(log, *values)
            if arguments[0] > log.log_end_offset:
                continue
            read = log.read(*arguments, **options)
            piece = read.slice
            found.append((piece and (piece.offset, piece.length, piece.data), read[1:]))
        assert found[:1] == found[1:], (arguments, options)
    assert counted.found > 100


def test_a_segment_whose_fsync_has_failed_is_not_read(reads: Reads) -> None:
    for _ in range(3):
        reads.read(0)
    segment = reads.log.segments[0]
    segment.release()
    segment._sync_error = OSError(errno.EIO, "it failed")
    with pytest.raises(BrokerError) as refused:
        reads.read(0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_bytes_that_have_left_the_memory_are_read_ahead(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        reads.read(0)
    monkeypatch.setattr(SimFile, "is_cached", lambda *_: False)
    log = reads.log
    assert log.read(0, LIMIT, upper_offset=log.log_end_offset).unchecked is not None
