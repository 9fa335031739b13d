"""The index of a log's keys gives the same answers as a dict of the log's records, after any operations."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.log import key_runs
from broker.log.flush_job import close_log
from broker.log.key_reading import KeyIndexing, catch_up_at_once, open_index, write_at_once
from broker.log.key_runs import DamagedRun, entries_of, find, merged, read_run, run_name, write_run
from broker.log.key_versions import BYTES_PER_KEY, digest_of
from broker.log.log import Log, LogEvents
from protocol.errors import BrokerError, ErrorCode
from protocol.records import BatchBuilder
from tests.models.logs import NOW_MS, append_as_leader, new_log, reopen, sim_disk
from tests.models.workers import ImmediateWorkers

KEYS = [f"k{number}".encode() for number in range(12)]
BATCH = st.lists(st.one_of(st.none(), st.sampled_from(KEYS)), min_size=1, max_size=4)


def append_keys(log: Log, keys: Iterable[bytes | None], leader_epoch: int = 0) -> int:
    """Append one batch. Returns its first offset."""
    builder = BatchBuilder()
    for key in keys:
        builder.append(NOW_MS, key, b"value")
    return append_as_leader(log, memoryview(builder.build()), leader_epoch, now_ms=NOW_MS).first_offset


def indexed(log: Log) -> Log:
    """The log, with its index up to date, and kept so on this thread."""

    def write(log: Log) -> None:
        write_at_once(log)

    log.events = LogEvents(keys_full=write, keys_behind=catch_up_at_once)
    open_index(log)
    catch_up_at_once(log)
    return log


def new_indexed_log(keys_in_memory: int = 3, **config: int) -> Log:
    return indexed(
        new_log(
            sim_disk(),
            key_versions=True,
            key_versions_memory_bytes=keys_in_memory * BYTES_PER_KEY,
            **config,
        )
    )


def version(log: Log, key: bytes) -> int:
    return log.last_offset_of_key(digest_of(key))


def run_names(log: Log) -> list[str]:
    return [name for name in log.disk.list(log.directory) if name.endswith(".keys")]


class KeysMachine(RuleBasedStateMachine):
    """The model is the list of the records' keys with their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Log
        self.model: list[tuple[int, tuple[bytes | None, ...]]] = []
        self.epoch = 0
        self.start = 0

    @initialize(in_memory=st.integers(1, 8), segment_bytes=st.sampled_from([200, 1000, 100_000]))
    def create(self, in_memory: int, segment_bytes: int) -> None:
        self.log = new_indexed_log(in_memory, segment_bytes=segment_bytes)

    @rule(batches=st.lists(BATCH, min_size=1, max_size=6), new_epoch=st.booleans())
    def append(self, batches: list[list[bytes | None]], new_epoch: bool) -> None:
        self.epoch += new_epoch
        for keys in batches:
            self.model.append((append_keys(self.log, keys, self.epoch), tuple(keys)))

    @rule(removed=st.integers(0, 20))
    def truncate(self, removed: int) -> None:
        self.log.truncate_to(max(self.start, self.log.log_end_offset - removed))
        end = self.log.log_end_offset
        self.model = [(base, keys) for base, keys in self.model if base < end]
        self.start = self.log.log_start_offset
        self.epoch += 1

    @rule(removed=st.integers(1, 8))
    def delete_records(self, removed: int) -> None:
        self.start = min(self.start + removed, self.log.log_end_offset)
        self.log.advance_log_start(self.start)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        disk = self.log.disk
        if is_clean:
            close_log(self.log)
        else:
            disk.kill_process()  # type: ignore[attr-defined]
        self.log = indexed(
            reopen(
                disk, self.log,
                is_clean=is_clean, recovery_point=self.log.recovery_point, log_start_offset=self.start,
            )
        )  # fmt: skip

    @rule()
    def switch_off_and_on(self) -> None:
        enabled = self.log.settings
        self.log.settings = type(enabled)()
        open_index(self.log)
        assert self.log.keys is None
        self.log.settings = enabled
        indexed(self.log)

    @invariant()
    def each_key_has_the_offset_of_its_last_record(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = {
            key: base + delta
            for base, keys in self.model
            for delta, key in enumerate(keys)
            if key is not None and base + delta >= self.start
        }
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
        version(log, KEYS[0])

    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [version(log, key) for key in KEYS] == list(range(len(KEYS)))


def test_a_file_of_another_history_of_the_log_is_not_used() -> None:
    """After a power failure a removed file may be back, while the log has other records at its offsets."""
    log = new_indexed_log(keys_in_memory=1)
    append_keys(log, [b"old", b"older"], leader_epoch=1)
    (name,) = run_names(log)
    returned = log.disk.read(f"{log.directory}/{name}")
    log.truncate_to(0)
    append_keys(log, [b"new", b"newer"], leader_epoch=2)
    close_log(log)
    log.disk.write_atomically(f"{log.directory}/{name}", returned)

    log = indexed(reopen(log.disk, log, is_clean=True))

    assert [version(log, key) for key in (b"old", b"older", b"new", b"newer")] == [-1, -1, 0, 1]


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
    indexing = KeyIndexing(workers)
    log.events = LogEvents(keys_full=indexing.write, keys_behind=indexing.catch_up)
    for key in (b"a", b"b", b"c"):
        append_keys(log, [key])
    assert [version(log, key) for key in (b"a", b"b", b"c")] == [0, 1, 2]

    log.truncate_to(1)
    with pytest.raises(BrokerError):
        version(log, b"a")
    append_keys(log, [b"c"], leader_epoch=1)
    workers.release()

    assert [version(log, key) for key in (b"a", b"b", b"c")] == [0, -1, 1]
    assert run_names(log) == [run_name(0, 2)]
    assert not [name for name in log.disk.list(log.directory) if name.endswith(".tmp")]


def test_records_that_arrive_while_the_index_is_built_are_included() -> None:
    log = new_log(sim_disk(), key_versions=True)
    workers = ImmediateWorkers(is_held=True)
    indexing = KeyIndexing(workers)
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
    assert log.cold_key_search([digest_of(b"a")]) is None
    disk.cold_share = 1.0  # type: ignore[attr-defined]

    search = log.cold_key_search([digest_of(b"a")])

    assert search is not None
    search()
    assert log.cold_key_search([]) is None


def test_without_the_setting_no_key_has_a_version() -> None:
    log = new_log(sim_disk())

    with pytest.raises(BrokerError) as refused:
        version(log, b"a")

    assert refused.value.code == ErrorCode.POLICY_VIOLATION
