"""Compaction of transactions: what a reader of committed records sees stays, and what nobody sees goes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from unittest import mock

import pytest

from holdfast_log.broker.cleaning import cleaning_pass
from holdfast_log.broker.cleaning.transactions import PassTransactions
from holdfast_log.broker.log.aborted_search import aborted_between
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.transactions import AbortedEntry
from holdfast_log.clients.fetching.isolation import skipped
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.messages.fetch import AbortedTransaction
from holdfast_log.protocol.records import iterate
from tests.models.compaction import compact
from tests.models.disk import SimDisk
from tests.models.logs import NOW_MS, append_as_leader, headers_of, new_log, read_all, restarted, sim_disk
from tests.models.transactional import transactional_batch

RETENTION_MS = 100


def compacted_log(disk: SimDisk, segment_bytes: int = 100_000) -> Log:
    return new_log(
        disk, segment_bytes=segment_bytes, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=RETENTION_MS,
    )  # fmt: skip


def write(log: Log, *rows: tuple[bytes, bytes | None], producer_id: int = 7) -> None:
    batch = transactional_batch(
        *((NOW_MS, key, value) for key, value in rows), producer_id=producer_id, sequence=-1
    )
    append_as_leader(log, memoryview(batch), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)


def end(log: Log, *, commits: bool, producer_id: int = 7) -> None:
    batch = end_marker_batch(producer_id, 0, EndMarker(commits, 0), NOW_MS)
    append_as_leader(log, memoryview(batch), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)


def clean(log: Log, disk: SimDisk, now_ms: int = NOW_MS) -> None:
    log.roll(now_ms)
    flush_at_once(log)
    compact(log, disk, now_ms)


def committed(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a reader of committed records gets, in one response."""
    records = memoryview(read_all(log, 1 << 20))
    headers = split(records)
    aborted = [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in aborted_between(log, log.log_start_offset, log.log_end_offset)[0]
    ]
    return [
        (record.offset, record.key, record.value)
        for header, is_skipped in zip(headers, skipped(records, headers, aborted), strict=True)
        if not is_skipped
        for record in iterate(records, header)
    ]


def latest(
    rows: list[tuple[int, bytes | None, bytes | None]],
) -> dict[bytes | None, tuple[int, bytes | None]]:
    found = {key: (offset, value) for offset, key, value in rows}
    return {key: row for key, row in found.items() if row[1] is not None}


@pytest.fixture
def disk() -> SimDisk:
    return sim_disk()


def test_records_of_aborted_transactions_go_and_replace_no_others(disk: SimDisk) -> None:
    log = compacted_log(disk)
    write(log, (b"a", b"1"))
    end(log, commits=True)
    write(log, (b"a", b"2"))
    end(log, commits=False)
    write(log, (b"b", b"3"), producer_id=8)
    end(log, commits=True, producer_id=8)
    clean(log, disk)
    values = [record.value for header in headers_of(log) if not header.is_control
              for record in iterate(memoryview(read_all(log)), header)]  # fmt: skip
    assert values == [b"1", b"3"]
    assert latest(committed(log)) == {b"a": (0, b"1"), b"b": (4, b"3")}


def test_the_records_of_committed_transactions_replace_others(disk: SimDisk) -> None:
    log = compacted_log(disk)
    for value in (b"1", b"2"):
        write(log, (b"a", value))
        end(log, commits=True)
    clean(log, disk)
    assert [row for row in committed(log) if row[1] == b"a"] == [(2, b"a", b"2")]


def test_a_marker_stays_until_its_delete_horizon_once_its_transaction_is_gone(disk: SimDisk) -> None:
    log = compacted_log(disk, 300)  # The last segment keeps its markers: so there have to be several.
    write(log, (b"first of the epoch", b"v"), producer_id=9)
    end(log, commits=True, producer_id=9)
    write(log, (b"a", b"1"))
    end(log, commits=False)

    def again(now_ms: int) -> dict[int, bool]:
        """Compact the log again, with something dirty at its end. Returns the markers, and whether they have
        a delete horizon."""
        write(log, (b"last", b"w"), producer_id=9)
        end(log, commits=True, producer_id=9)
        clean(log, disk, now_ms)
        return {each.base_offset: each.has_delete_horizon for each in headers_of(log) if each.is_control}

    def indexed() -> list[AbortedEntry]:
        return [entry for segment in log.segments for entry in segment.aborted.entries()]

    found = again(NOW_MS)
    # The last batch of a producer stays as long as the log remembers the producer.
    assert (found[1], found[3]) == (False, False)
    log.producers.expire(NOW_MS + log.producers.expiration_ms)
    assert log.producers.get(7) is None
    assert not again(NOW_MS + 1)[3]
    assert indexed() == [AbortedEntry(7, 2, 3, 4)]
    assert again(NOW_MS + 2)[3]
    assert indexed() == []
    assert again(NOW_MS + 1 + RETENTION_MS)[3]
    found = again(NOW_MS + 2 + RETENTION_MS)
    assert 3 not in found and not found[1]


def test_compaction_does_not_pass_an_open_transaction(disk: SimDisk) -> None:
    log = compacted_log(disk, 200)
    for value in (b"1", b"2"):
        write(log, (b"a", value), producer_id=8)
        end(log, commits=True, producer_id=8)
    write(log, (b"open", b"v"))
    for value in (b"3", b"4"):
        write(log, (b"a", value), producer_id=8)
        end(log, commits=True, producer_id=8)
    clean(log, disk)
    assert log.cleaned_offset <= 4
    offsets = [header.base_offset for header in headers_of(log)]
    assert offsets[-5:] == [4, 5, 6, 7, 8]


def test_a_pass_knows_a_bounded_number_of_aborted_transactions_at_a_time(disk: SimDisk) -> None:
    """A log may have millions. All are looked up, a few in each turn of the reactor, and nothing of them
    stays."""
    log = compacted_log(disk, 10_000)
    write(log, (b"open for long", b"v"), producer_id=8)
    for number in range(300):
        write(log, (b"%d" % (number % 7), b"aborted"), producer_id=number % 3)
        end(log, commits=False, producer_id=number % 3)
        if number % 50 == 0:
            write(log, (b"kept %d" % number, b"v"), producer_id=9)
            end(log, commits=True, producer_id=9)
    end(log, commits=False, producer_id=8)
    at_once, passes, learn = 10, [], PassTransactions.learn

    def counted(self: PassTransactions, aborted: Iterable[AbortedEntry], known_to: int) -> None:
        found = list(aborted)
        learn(self, found, known_to)
        assert len(found) <= at_once + 4 and len(self._coming) <= at_once + 4, "four producers have one more"
        passes.append(len(found))

    with (
        mock.patch.object(cleaning_pass, "TRANSACTIONS_AT_ONCE", at_once),
        mock.patch.object(PassTransactions, "learn", counted),
    ):
        clean(log, disk)
    assert sum(passes) >= 2 * 300, "once for the keys, once for the copies"
    assert len(passes) >= 2 * 300 // (at_once + 4)
    assert [row[1] for row in committed(log)] == [b"kept %d" % number for number in range(0, 300, 50)]
    values = [record.value for header in headers_of(log) if not header.is_control
              for record in iterate(memoryview(read_all(log, 1 << 20)), header)]  # fmt: skip
    assert set(values) == {b"v"} and len(values) == 6


@pytest.mark.parametrize("at_once", [1, 3, 4_000])
@pytest.mark.parametrize("seed", range(12))
def test_readers_of_committed_records_see_the_same_state_after_any_passes(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning_pass, "TRANSACTIONS_AT_ONCE", at_once)
    disk, random_ = sim_disk(), random.Random(seed)
    log = compacted_log(disk, random_.choice([200, 500, 2000]))
    now_ms, open_ = NOW_MS, set[int]()
    for number in range(160):
        producer_id = random_.randrange(3)
        match random_.randrange(12):
            case 0:
                before = latest(committed(log)) if not open_ else None
                clean(log, disk, now_ms)
                assert before is None or latest(committed(log)) == before
            case 1:
                now_ms += RETENTION_MS
            case 2:
                log = restarted(disk, log, is_clean=random_.random() < 0.5)
            case 3 | 4 | 5 if producer_id in open_:
                end(log, commits=random_.random() < 0.5, producer_id=producer_id)
                open_.discard(producer_id)
            case _:
                value = random_.choice([None, b"%d" % number])
                write(log, (random_.choice([b"a", b"b", b"c"]), value), producer_id=producer_id)
                open_.add(producer_id)
    for producer_id in open_:
        end(log, commits=False, producer_id=producer_id)
    before = latest(committed(log))
    for _ in range(4):
        now_ms += RETENTION_MS
        clean(log, disk, now_ms)
        write(log, (b"z", b"1"), producer_id=5)
        end(log, commits=True, producer_id=5)
        found = latest(committed(log))
        del found[b"z"]
        assert found == before
