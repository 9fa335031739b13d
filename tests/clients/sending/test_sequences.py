"""The numbers of a producer's batches in one partition: after the last sequence comes 0 again."""

from __future__ import annotations

from holdfast_log.clients.sending.sequences import Sequences

LAST = 2**31 - 1


def test_the_batch_after_the_last_sequence_begins_at_0() -> None:
    numbers = Sequences(producer_id=7, epoch=0, next_sequence=LAST - 1)
    assert numbers.stamp(2) == LAST - 1
    assert numbers.stamp(1) == 0


def test_a_batch_may_go_over_the_last_sequence() -> None:
    numbers = Sequences(producer_id=7, epoch=0, next_sequence=LAST)
    first = numbers.stamp(3)
    assert (first, numbers.next_sequence) == (LAST, 2)
    numbers.succeeded(first, 3)
    assert (numbers.acknowledged, numbers.wants_new_epoch) == (2, False)
