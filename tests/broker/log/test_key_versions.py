"""The index of a log's keys gives the same answers as the log's records, after any operations and faults."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast_log.broker.log import key_runs
from holdfast_log.broker.log.flush_job import close_log, flush_at_once
from holdfast_log.broker.log.key_memory import KeyMemory
from holdfast_log.broker.log.key_reading import KeyIndexing
from holdfast_log.broker.log.key_runs import (
    DamagedRun,
    entries_of,
    find,
    merged,
    read_run,
    run_name,
    write_run,
)
from holdfast_log.broker.log.key_search import cold_key_search, last_offset_of_key
from holdfast_log.broker.log.key_versions import BYTES_PER_KEY, digest_of
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.truncation import advance_log_start, truncate_to
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.records import BatchBuilder, decode_columns
from tests.models.compaction import compact
from tests.models.disk import SimDisk
from tests.models.logs import NOW_MS, append_as_leader, new_log, read_all, reopen, sim_disk
from tests.models.workers import ImmediateWorkers

KEYS = [f"k{number}".encode() for number in range(12)]
BATCH = st.lists(st.one_of(st.none(), st.sampled_from(KEYS)), min_size=1, max_size=4)


def append_keys(log: Log, keys: Iterable[bytes | None], leader_epoch: int = 0) -> int:
    """Append one batch. Returns its first offset."""
    builder = BatchBuilder()
    for key in keys:
        builder.append(NOW_MS, key, b"value")
    return append_as_leader(log, memoryview(builder.build()), leader_epoch, now_ms=NOW_MS).first_offset


def indexed(log: Log, workers: ImmediateWorkers | None = None, memory: KeyMemory | None = None) -> Log:
    """The log, with an index that these workers keep; by default they do each job at once."""
    indexing = KeyIndexing(workers or ImmediateWorkers(), memory or KeyMemory(1 << 30))
    log.events = LogEvents(keys_full=indexing.write, keys_behind=indexing.catch_up)
    indexing.settings_changed(log)
    return log


def new_indexed_log(keys_in_memory: int = 3, seed: int = 0, **config: Any) -> Log:
    return indexed(
        new_log(
            sim_disk(seed),
            key_versions=True,
            key_versions_memory_bytes=keys_in_memory * BYTES_PER_KEY,
            **config,
        )
    )


def version(log: Log, key: bytes) -> int:
    """The key's version. After damage the first question has the index built again, which is done at once."""
    try:
        return last_offset_of_key(log, digest_of(key))
    except BrokerError as error:
        assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return last_offset_of_key(log, digest_of(key))


def run_names(log: Log) -> list[str]:
    return [name for name in log.disk.list(log.directory) if name.endswith(".keys")]


def versions_in(log: Log) -> dict[bytes, int]:
    """The version of each key, by the records in the log."""
    data = memoryview(read_all(log))
    last = {}
    for header in split(data):
        columns = decode_columns(data, header)
        for key, offset in zip(columns.keys, columns.offsets, strict=True):
            if key is not None and offset >= log.log_start_offset:
                last[bytes(key)] = offset
    return last


class KeysMachine(RuleBasedStateMachine):
    """Whatever happens to the disk, the index agrees with the log, or is built again."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Log
        self.epoch = 0
        self.starts = [0]
        """Starts of the log, of which a crash brings back the first: its checkpoint may be old."""

    @property
    def disk(self) -> SimDisk:
        disk = self.log.disk
        assert isinstance(disk, SimDisk)
        return disk

    @initialize(
        in_memory=st.integers(1, 8),
        segment_bytes=st.sampled_from([200, 1000, 100_000]),
        seed=st.integers(0, 9),
    )
    def create(self, in_memory: int, segment_bytes: int, seed: int) -> None:
        self.log = new_indexed_log(in_memory, seed, segment_bytes=segment_bytes)
        flush_at_once(self.log)

    @rule(batches=st.lists(BATCH, min_size=1, max_size=6), new_epoch=st.booleans())
    def append(self, batches: list[list[bytes | None]], new_epoch: bool) -> None:
        self.epoch += new_epoch
        for keys in batches:
            append_keys(self.log, keys, self.epoch)

    @rule(removed=st.integers(0, 20))
    def truncate(self, removed: int) -> None:
        truncate_to(self.log, max(self.log.log_start_offset, self.log.log_end_offset - removed))
        self.epoch += 1

    @rule(removed=st.integers(1, 8))
    def delete_records(self, removed: int) -> None:
        advance_log_start(self.log, min(self.log.log_start_offset + removed, self.log.log_end_offset))
        self.starts.append(self.log.log_start_offset)

    @rule()
    def flush(self) -> None:
        flush_at_once(self.log)
        del self.starts[:-1]

    @rule()
    def stop_in_order(self) -> None:
        close_log(self.log)
        del self.starts[:-1]
        self._start(is_clean=True)

    @rule()
    def die(self) -> None:
        self.disk.kill_process()
        self._start(is_clean=False)

    @rule()
    def lose_power(self) -> None:
        """Records without a flush may be lost, and files that the index had removed may be back."""
        self.disk.lose_power()
        self._start(is_clean=False)
        # A broker that may have lost records leads only with a new epoch.
        self.epoch += 1

    def _start(self, *, is_clean: bool) -> None:
        # A broker that starts makes the names of its logs durable (`LogDirectory.begin_running`).
        self.disk.fsync_directory("/data")
        log = reopen(
            self.disk, self.log,
            is_clean=is_clean, recovery_point=self.log.recovery_point, log_start_offset=self.starts[0],
        )  # fmt: skip
        self.log = indexed(log)
        self.starts = [log.log_start_offset]

    @rule(choice=st.integers(0, 99), how=st.sampled_from(["removed", "empty", "cut", "garbage", "one bit"]))
    def damage_a_file(self, choice: int, how: str) -> None:
        names = run_names(self.log)
        if not names:
            return
        path = f"{self.log.directory}/{names[choice % len(names)]}"
        size = self.disk.size(path)
        match how:
            case "removed":
                self.disk.remove(path)
            case "empty":
                self.disk.cut(path, 0)
            case "cut":
                self.disk.cut(path, choice * size // 100)
            case "garbage":
                for position in range(choice * size // 100, size):
                    self.disk.rot(path, position, position % 8)
            case _:
                self.disk.rot(path, choice * size // 100, choice % 8)

    @rule()
    def switch_off_and_on(self) -> None:
        enabled = self.log.settings
        self.log.settings = type(enabled)()
        indexed(self.log)
        assert self.log.keys is None
        assert not run_names(self.log)
        self.log.settings = enabled
        indexed(self.log)

    @invariant()
    def each_key_has_the_offset_of_its_last_record(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = versions_in(self.log)
        assert {key: version(self.log, key) for key in KEYS} == {key: expected.get(key, -1) for key in KEYS}

    @invariant()
    def the_table_is_bounded(self) -> None:
        if hasattr(self, "log") and self.log.keys is not None:
            assert self.log.keys.keys_in_memory <= self.log.keys.keys_max + 4


KeysMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKeys = KeysMachine.TestCase


def test_a_search_finds_every_key_of_a_large_file_and_no_other() -> None:
    disk = sim_disk()
    digests = sorted(digest_of(str(number).encode()) for number in range(5000))
    path = f"/data/{run_name(0, 5000)}"
    written = write_run(disk, path, ((digest, at) for at, digest in enumerate(digests)), 0, 5000, 7)
    run, file = read_run(disk, path), disk.open(path)

    assert run == written
    assert [find(run, file, digest) for digest in digests] == list(range(5000))
    assert all(find(run, file, digest_of(f"other {number}".encode())) == -1 for number in range(500))
    assert [offset for _, offset in entries_of(run, file)] == list(range(5000))


def test_a_search_finds_keys_whose_digests_are_not_evenly_distributed() -> None:
    disk = sim_disk()
    digests = [number.to_bytes(key_runs.DIGEST_BYTES) for number in range(2000)]
    path = f"/data/{run_name(0, 2000)}"
    run = write_run(disk, path, ((digest, at) for at, digest in enumerate(digests)), 0, 2000, 0)

    assert [find(run, disk.open(path), digest) for digest in digests] == list(range(2000))


def test_a_merged_file_has_the_last_offset_of_each_key_and_none_before_the_logs_start() -> None:
    a, b, c = sorted(digest_of(key) for key in (b"a", b"b", b"c"))
    older, newer = [(a, 1), (b, 2), (c, 3)], [(a, 7), (c, 9)]

    assert list(merged([iter(older), iter(newer)], 3)) == [(a, 7), (c, 9)]


@pytest.mark.parametrize("position", [0, 5000, -3])
def test_damage_to_a_file_is_noticed(position: int) -> None:
    disk = sim_disk()
    path = f"/data/{run_name(0, 500)}"
    digests = sorted(digest_of(str(number).encode()) for number in range(500))
    write_run(disk, path, ((digest, at) for at, digest in enumerate(digests)), 0, 500, 0)
    data = bytearray(disk.read(path))
    data[position] ^= 1
    disk.write_atomically(path, bytes(data))

    with pytest.raises(DamagedRun):
        run, file = read_run(disk, path), disk.open(path)
        for digest in digests:
            find(run, file, digest)


def test_after_damage_the_versions_are_read_from_the_log_again() -> None:
    log = new_indexed_log(keys_in_memory=2)
    for key in KEYS:
        append_keys(log, [key])
    for name in run_names(log):
        path = f"{log.directory}/{name}"
        log.keys.release()  # type: ignore[union-attr]
        data = bytearray(log.disk.read(path))
        data[100] ^= 1
        log.disk.write_atomically(path, bytes(data))

    with pytest.raises(BrokerError) as refused:
        last_offset_of_key(log, digest_of(KEYS[0]))

    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [version(log, key) for key in KEYS] == list(range(len(KEYS)))


def test_a_file_of_another_history_of_the_log_is_not_used() -> None:
    """After a power failure a removed file may be back, while the log has other records at its offsets."""
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"old", b"older"], leader_epoch=1)
    (name,) = run_names(log)
    returned = log.disk.read(f"{log.directory}/{name}")
    truncate_to(log, 0)
    append_keys(log, [b"new", b"newer"], leader_epoch=2)
    close_log(log)
    log.disk.write_atomically(f"{log.directory}/{name}", returned)

    log = indexed(reopen(log.disk, log, is_clean=True))

    assert [version(log, key) for key in (b"old", b"older", b"new", b"newer")] == [-1, -1, 0, 1]


def test_a_truncation_removes_the_keys_in_the_table() -> None:
    log = new_indexed_log(keys_in_memory=100)
    append_keys(log, [b"a"])
    append_keys(log, [b"a"])

    truncate_to(log, 1)

    assert version(log, b"a") == 0


def test_few_files_remain_of_many_tables() -> None:
    log = new_indexed_log(keys_in_memory=8)
    rng = random.Random(1)
    last: dict[bytes, int] = {}
    for _ in range(2000):
        key = str(rng.randrange(600)).encode()
        last[key] = append_keys(log, [key])

    assert len(run_names(log)) <= 10
    assert all(version(log, key) == offset for key, offset in last.items())


def test_while_a_worker_writes_the_table_all_keys_are_found_and_a_truncation_discards_its_work() -> None:
    log = new_indexed_log(keys_in_memory=2)
    workers = ImmediateWorkers(is_held=True)
    indexing = KeyIndexing(workers, KeyMemory(1 << 30))
    log.events = LogEvents(keys_full=indexing.write, keys_behind=indexing.catch_up)
    for key in (b"a", b"b", b"c"):
        append_keys(log, [key])
    assert [version(log, key) for key in (b"a", b"b", b"c")] == [0, 1, 2]

    truncate_to(log, 1)
    with pytest.raises(BrokerError):
        version(log, b"a")
    append_keys(log, [b"c"], leader_epoch=1)
    workers.release()

    assert [version(log, key) for key in (b"a", b"b", b"c")] == [0, -1, 1]
    assert run_names(log) == [run_name(0, 2)]
    assert not [name for name in log.disk.list(log.directory) if name.endswith(".tmp")]


def test_after_a_crash_the_log_may_begin_earlier_again_than_the_files() -> None:
    """A merged file lacks the keys of deleted records. The checkpoint of the log's start may be old."""
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, KEYS[:3])
    advance_log_start(log, 2)
    for key in KEYS[3:8]:
        append_keys(log, [key])
    assert [version(log, key) for key in KEYS[:3]] == [-1, -1, 2]
    disk = log.disk
    disk.kill_process()  # type: ignore[attr-defined]

    log = indexed(reopen(disk, log, is_clean=False, log_start_offset=0))

    assert [version(log, key) for key in KEYS[:3]] == [0, 1, 2]


def test_a_job_of_an_index_that_was_switched_off_does_not_write_into_the_files_of_the_next_one() -> None:
    log = new_indexed_log(keys_in_memory=100)
    append_keys(log, [b"a"])
    late = log.keys.begin_writing()  # type: ignore[union-attr]
    truncate_to(log, 0)
    enabled = log.settings
    log.settings = type(enabled)()
    indexed(log)
    log.settings = enabled
    index = indexed(log).keys
    append_keys(log, [b"b"], leader_epoch=1)
    assert late is not None
    assert index is not None
    job = index.begin_writing()
    assert job is not None

    written = job.run()
    late.run()
    index.finish_writing(job, written)

    assert [version(log, key) for key in (b"a", b"b")] == [-1, 0]


def test_a_truncation_during_a_merge_discards_its_work_and_the_log_stays_in_use() -> None:
    workers = ImmediateWorkers()
    log = indexed(new_indexed_log(keys_in_memory=1), workers)
    append_keys(log, [b"a"])
    append_keys(log, [b"b"])
    workers.is_held = True
    append_keys(log, [b"c"])
    workers.work()  # The table with c is in a file; a job to merge the files with a and b waits.
    assert len(run_names(log)) == 3

    truncate_to(log, 1)
    workers.release()

    assert log.failure is None
    assert [version(log, key) for key in (b"a", b"b", b"c")] == [0, -1, -1]
    assert run_names(log) == [run_name(0, 1)]


def test_damage_that_a_merge_finds_has_the_index_built_again() -> None:
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"a"])
    append_keys(log, [b"b"])
    log.disk.rot(f"{log.directory}/{run_name(0, 1)}", 100, 0)  # type: ignore[attr-defined]
    for _ in range(3):
        append_keys(log, [b"c"])

    assert log.failure is None
    assert log.keys is not None
    assert log.keys.keys_in_memory <= 1
    assert [last_offset_of_key(log, digest_of(key)) for key in (b"a", b"b", b"c")] == [0, 1, 4]


def test_a_file_that_was_removed_by_hand_has_the_index_built_again() -> None:
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"a"])
    append_keys(log, [b"b"])
    log.keys.release()  # type: ignore[union-attr]
    log.disk.remove(f"{log.directory}/{run_name(0, 1)}")

    assert [version(log, key) for key in (b"a", b"b")] == [0, 1]
    assert log.failure is None


def test_while_a_slow_disk_writes_a_table_the_index_falls_behind_instead_of_growing() -> None:
    workers = ImmediateWorkers()
    log = indexed(new_indexed_log(keys_in_memory=4), workers)
    workers.is_held = True
    keys = [str(number).encode() for number in range(100)]
    for key in keys:
        append_keys(log, [key])

    assert log.keys is not None
    assert log.keys.keys_in_memory <= 2 * 4
    with pytest.raises(BrokerError):
        last_offset_of_key(log, digest_of(keys[0]))
    workers.release()
    assert [last_offset_of_key(log, digest_of(key)) for key in keys] == list(range(100))


def test_a_merge_that_takes_long_does_not_delay_the_writing_of_tables() -> None:
    workers = ImmediateWorkers()
    log = indexed(new_indexed_log(keys_in_memory=1), workers)
    append_keys(log, [b"a"])
    append_keys(log, [b"b"])
    workers.is_held = True
    append_keys(log, [b"c"])
    workers.work()
    (merging,) = workers.jobs
    for key in KEYS:
        append_keys(log, [key])
        workers.jobs.pop()()

    assert workers.jobs == [merging]
    assert [last_offset_of_key(log, digest_of(key)) for key in (b"a", *KEYS)] == [0, *range(3, 3 + len(KEYS))]
    workers.release()
    assert [last_offset_of_key(log, digest_of(key)) for key in (b"a", *KEYS)] == [0, *range(3, 3 + len(KEYS))]


def test_the_index_believes_no_batch_of_the_log_whose_checksum_does_not_match() -> None:
    log = new_log(sim_disk(), key_versions=True)
    append_keys(log, [b"k"])
    second = log.size_bytes
    append_keys(log, [b"k"])
    # The last byte of the second batch: the key is readable, and the records are not.
    log.disk.rewrite(log.segments.active.path, log.size_bytes - 8, 0)  # type: ignore[attr-defined]
    assert second < log.size_bytes
    suspected: list[int] = []
    workers = ImmediateWorkers()
    indexing = KeyIndexing(workers, KeyMemory(1 << 30))
    log.events = LogEvents(
        keys_behind=indexing.catch_up, suspected=lambda log, base_offset, why: suspected.append(base_offset)
    )

    indexing.settings_changed(log)

    assert suspected == [0]
    with pytest.raises(BrokerError) as refused:
        last_offset_of_key(log, digest_of(b"k"))
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_after_a_truncation_during_a_read_the_index_catches_up_without_being_asked() -> None:
    log = new_log(sim_disk(), key_versions=True)
    for key in (b"a", b"b", b"c"):
        append_keys(log, [key])
    workers = ImmediateWorkers()
    indexing = KeyIndexing(workers, KeyMemory(1 << 30))
    log.events = LogEvents(keys_full=indexing.write, keys_behind=indexing.catch_up)
    workers.is_held = True
    indexing.settings_changed(log)
    workers.work()  # The files are listed; the read of the log waits.

    truncate_to(log, 1)
    workers.release()

    assert log.failure is None
    assert [last_offset_of_key(log, digest_of(key)) for key in (b"a", b"b", b"c")] == [0, -1, -1]


def test_a_worker_looks_for_the_files_of_a_log_that_is_opened() -> None:
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"a"])
    close_log(log)
    workers = ImmediateWorkers(is_held=True)
    log = indexed(reopen(log.disk, log, is_clean=True), workers)
    with pytest.raises(BrokerError) as refused:
        last_offset_of_key(log, digest_of(b"a"))
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    workers.release()

    assert last_offset_of_key(log, digest_of(b"a")) == 0


def test_files_are_renamed_at_once_and_removed_later() -> None:
    """The removal of a large file may take a file system long."""
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"a"])
    discarded: list[str] = []
    log.events = replace(log.events, discard=lambda log, paths: discarded.extend(paths))

    truncate_to(log, 0)

    path = f"{log.directory}/{run_name(0, 1)}"
    assert path + ".deleted" in discarded
    assert not log.disk.exists(path)
    assert log.disk.exists(path + ".deleted")


def test_records_that_arrive_while_the_index_is_built_are_included() -> None:
    log = new_log(sim_disk(), key_versions=True)
    workers = ImmediateWorkers(is_held=True)
    indexing = KeyIndexing(workers, KeyMemory(1 << 30))
    log.events = LogEvents(keys_full=indexing.write, keys_behind=indexing.catch_up)
    append_keys(log, [b"a", b"b"])
    indexing.settings_changed(log)
    append_keys(log, [b"b"])
    with pytest.raises(BrokerError):
        version(log, b"a")

    workers.release()

    assert [version(log, key) for key in (b"a", b"b")] == [0, 2]


def test_a_search_that_would_wait_for_the_device_is_for_a_worker() -> None:
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"a", b"b"])
    append_keys(log, [b"c"])
    disk = log.disk
    assert cold_key_search(log, [digest_of(b"a")]) is None
    disk.cold_share = 1.0  # type: ignore[attr-defined]

    search = cold_key_search(log, [digest_of(b"a")])

    assert search is not None
    search()
    assert cold_key_search(log, []) is None


def test_without_the_setting_no_key_has_a_version() -> None:
    log = new_log(sim_disk())

    with pytest.raises(BrokerError) as refused:
        last_offset_of_key(log, digest_of(b"a"))

    assert refused.value.code == ErrorCode.POLICY_VIOLATION


def append_record(log: Log, key: bytes, value: bytes | None) -> int:
    builder = BatchBuilder()
    builder.append(NOW_MS, key, value)
    return append_as_leader(log, memoryview(builder.build()), 0, now_ms=NOW_MS).first_offset


def test_a_key_whose_tombstone_is_gone_has_its_offset_as_version_until_the_index_is_built_again() -> None:
    """No other record of the key is there in either case: it is absent, and no offset is given again."""
    log = new_indexed_log(
        keys_in_memory=100,
        cleanup_policy=("compact",),
        segment_bytes=200,
        delete_retention_ms=1000,
        min_cleanable_dirty_ratio=0.0,
    )
    append_record(log, b"a", b"1")
    tombstone = append_record(log, b"a", None)
    for number in range(9):
        append_record(log, b"%d" % number, b"x")
    flush_at_once(log)
    for at_ms in (5000, 6000):
        log.cleaned_offset = 0
        compact(log, log.disk, NOW_MS + at_ms)
    assert b"a" not in versions_in(log)
    assert version(log, b"a") == tombstone

    assert log.keys is not None
    log.keys.reset(log.log_start_offset)
    assert version(log, b"a") == -1
    assert append_record(log, b"a", b"2") == 11
    assert version(log, b"a") == 11
