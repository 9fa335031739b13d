"""Sequences of idempotent producers: the next one, duplicates, and gaps."""

from __future__ import annotations

import pytest

from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.protocol import batches
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.batches import timed_batch

LAST = 2**31 - 1


class Writer:
    """The producer states of a leader's log, and its end offset."""

    def __init__(self) -> None:
        self.states = ProducerStates(expiration_ms=1000)
        self.end = 0

    def write(
        self, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1, now_ms: int = 0
    ) -> int | ErrorCode:
        """Append a batch. Returns its first offset, or the error code of the refusal."""
        written = header(sequence, count, epoch=epoch, producer_id=producer_id)
        try:
            duplicate = self.states.check([written])
        except BrokerError as error:
            return error.code
        if duplicate is not None:
            return duplicate.first_offset
        offset = self.end
        self.states.update(written, offset, now_ms)
        self.end += count
        return offset


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1) -> BatchHeader:
    records = timed_batch(*range(count), producer_id=producer_id, epoch=epoch, sequence=sequence)
    return batches.read_header(records)


def test_sequences_are_consecutive_and_wrap_to_0() -> None:
    log = Writer()
    assert log.write(LAST - 1) == 0
    assert log.write(LAST, 2) == 1
    assert log.write(1) == 3
    assert log.write(3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_batch_after_the_last_sequence_begins_at_0() -> None:
    log = Writer()
    assert log.write(LAST - 1, 2) == 0
    assert log.write(0) == 2
    assert log.write(1) == 3


def test_a_batch_over_the_last_sequence_is_recognised_by_its_first_one() -> None:
    log = Writer()
    assert log.write(LAST - 1, 4) == 0
    assert log.write(2) == 4
    assert log.write(LAST - 1, 4) == 0
    entry = log.states.get(1)
    assert entry is not None
    assert [batch.first_sequence for batch in entry.batches] == [LAST - 1, 2]


def test_retries_of_the_last_five_batches_are_recognised() -> None:
    log = Writer()
    offsets = [log.write(2 * number, 2) for number in range(8)]
    for number in range(3, 8):
        assert log.write(2 * number, 2) == offsets[number]
    for number in range(3):
        assert log.write(2 * number, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(16) == 16


def test_a_batch_that_overlaps_a_remembered_one_is_not_a_duplicate() -> None:
    log = Writer()
    for number in range(5):
        log.write(2 * number, 2)
    assert log.write(8, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(9, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(7, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_at_any_sequence_but_not_decrease_it() -> None:
    log = Writer()
    assert log.write(40) == 0
    # The batch may never have arrived; an answer as for a duplicate would lose it.
    assert log.write(39) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(41, 47):
        assert log.write(number) == number - 40
    assert log.write(39) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_higher_producer_epoch_begins_at_sequence_0_and_fences_the_lower() -> None:
    log = Writer()
    log.write(0)
    assert log.write(1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(0, epoch=1) == 1
    assert log.write(1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.write(0, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.write(0, epoch=1) == 1
    assert log.write(1, epoch=1) == 2


def test_several_batches_of_one_append_are_checked_in_order() -> None:
    states = ProducerStates()
    assert states.check([header(0, 2), header(2), header(0, producer_id=2)]) is None
    with pytest.raises(BrokerError) as raised:
        states.check([header(0, 2), header(3)])
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(states) == 0


def test_batches_without_a_producer_id_are_not_remembered() -> None:
    states = ProducerStates()
    plain = batches.read_header(timed_batch())
    assert states.check([plain]) is None
    states.update(plain, 0, 0)
    assert len(states) == 0


def test_producers_expire_by_the_time_of_their_last_write() -> None:
    log = Writer()
    log.write(0, producer_id=1, now_ms=0)
    log.write(0, producer_id=2, now_ms=500)
    log.write(1, producer_id=1, now_ms=900)
    assert log.states.expire(1499) == 0
    assert log.states.expire(1500) == 1
    assert log.states.get(2) is None and log.states.get(1) is not None
    assert log.write(5, producer_id=2) == 3


def test_above_the_limit_the_least_recently_active_producer_is_forgotten() -> None:
    states = ProducerStates(max_producers=3)
    for now_ms, producer_id in enumerate((1, 2, 3, 1, 4)):
        states.update(header(0, producer_id=producer_id), 0, now_ms)
    assert [entry.producer_id for entry in states.entries()] == [3, 1, 4]


def test_a_snapshot_keeps_each_producers_last_five_batches() -> None:
    log = Writer()
    offsets = [log.write(number) for number in range(7)]
    log.write(0, producer_id=2, epoch=6)
    restored = Writer()
    restored.states.restore(log.states.encode(), 8)
    restored.end = 8
    assert restored.states.map_end_offset == 8
    assert restored.states.encode() == log.states.encode()
    for number in range(2, 7):
        assert restored.write(number) == offsets[number]
    assert restored.write(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restored.write(1, producer_id=2, epoch=6) == 8


def test_a_damaged_snapshot_changes_no_producer_state() -> None:
    log = Writer()
    log.write(0)
    data = log.states.encode()
    for size in range(len(data)):
        with pytest.raises(ValueError):
            log.states.restore(data[:size], 1)
    for byte in range(len(data)):
        damaged = bytearray(data)
        damaged[byte] ^= 1
        with pytest.raises(ValueError):
            log.states.restore(bytes(damaged), 1)
    assert len(log.states) == 1
