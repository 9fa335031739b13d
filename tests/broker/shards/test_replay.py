"""What a new coordinator makes of a log with transactions: what compaction would keep, and what is open."""

from __future__ import annotations

import struct

import pytest

from holdfast_log.broker.shards.replay import LatestRecords
from holdfast_log.coordinator.shards.effects import ProducerStamp
from holdfast_log.protocol.batches import read_header
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import FileSlice
from tests.models.batches import START_MS, encoded
from tests.models.transactional import transactional_batch

OPEN = ProducerStamp(7, 0)


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fileno(self) -> int:
        raise OSError("not a file")

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]


class Log:
    """A log, and what `LatestRecords` replays of it."""

    def __init__(self) -> None:
        self.data = b""
        self.end_offset = 0
        self.replayed: list[tuple[bytes, bytes | None]] = []
        self.open: list[tuple[ProducerStamp, bytes, bytes | None]] = []

    def write(self, key: bytes, value: bytes | None, producer_id: int | None = None, epoch: int = 0) -> Log:
        rows = [(START_MS, key, value)]
        if producer_id is None:
            return self.append(encoded(rows))
        return self.append(transactional_batch(*rows, producer_id=producer_id, epoch=epoch))

    def end(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> Log:
        return self.append(end_marker_batch(producer_id, epoch, EndMarker(is_commit), START_MS))

    def append(self, batch: bytearray) -> Log:
        struct.pack_into(">q", batch, 0, self.end_offset)
        self.end_offset = read_header(batch).next_offset
        self.data += bytes(batch)
        return self

    def read(self, data: bytes | None = None, offset: int = 0) -> Log:
        latest = LatestRecords(
            lambda key, value: self.replayed.append((key, value)),
            lambda stamp, key, value: self.open.append((stamp, key, value)),
        )
        data = self.data if data is None else data
        latest.take(FileSlice(Bytes(data), 0, len(data)), offset)
        latest.finish()
        return self


def test_records_of_an_aborted_transaction_are_left_out() -> None:
    log = Log().write(b"k", b"old").write(b"k", b"no", 7).end(7, is_commit=False).read()
    assert (log.replayed, log.open) == ([(b"k", b"old")], [])


def test_records_of_a_committed_transaction_replace_earlier_ones() -> None:
    log = Log().write(b"k", b"old").write(b"k", b"new", 7).end(7, is_commit=True).read()
    assert (log.replayed, log.open) == ([(b"k", b"new")], [])


def test_a_later_record_counts_though_the_transaction_ends_after_it() -> None:
    log = Log().write(b"k", b"early", 7).write(b"k", b"late").end(7, is_commit=True).read()
    assert log.replayed == [(b"k", b"late")]


def test_of_two_transactions_the_later_record_counts_whichever_ends_first() -> None:
    for first, second in ((7, 8), (8, 7)):
        log = Log().write(b"k", b"one", 7).write(b"k", b"two", 8)
        log.end(first, is_commit=True).end(second, is_commit=True).read()
        assert log.replayed[-1] == (b"k", b"two")


def test_records_of_open_transactions_are_told_apart_and_come_last() -> None:
    log = Log().write(b"a", b"open", 7).write(b"b", b"plain").write(b"a", b"again", 7).read()
    assert log.replayed == [(b"b", b"plain")]
    assert log.open == [(OPEN, b"a", b"again")]


def test_an_open_record_that_a_later_one_has_replaced_is_left_out() -> None:
    log = Log().write(b"k", b"open", 7).write(b"k", None).read()
    assert (log.replayed, log.open) == ([(b"k", None)], [])


def test_a_marker_of_a_later_epoch_ends_what_the_producer_has_open() -> None:
    log = Log().write(b"k", b"timed out", 7).end(7, is_commit=False, epoch=1).read()
    assert (log.replayed, log.open) == ([], [])


def test_a_marker_ends_no_transaction_of_another_producer() -> None:
    log = Log().write(b"k", b"open", 7).end(8, is_commit=True).read()
    assert (log.replayed, log.open) == ([], [(OPEN, b"k", b"open")])


def test_a_transaction_begins_anew_after_its_producers_marker() -> None:
    log = Log().write(b"k", b"no", 7).end(7, is_commit=False).write(b"k", b"yes", 7).end(7, is_commit=True)
    assert log.read().replayed == [(b"k", b"yes")]


@pytest.mark.parametrize("cut", [1, 30])
def test_a_batch_that_is_cut_off_is_refused(cut: int) -> None:
    log = Log().write(b"k", b"old").write(b"k", b"new", 7)
    with pytest.raises(BrokerError) as refused:
        log.read(log.data[:-cut])
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_batch_is_refused() -> None:
    log = Log().write(b"k", b"new", 7)
    with pytest.raises(BrokerError) as refused:
        log.read(log.data[:-1] + bytes([log.data[-1] ^ 1]))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
