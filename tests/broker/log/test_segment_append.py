"""The compiled append of one batch and the one in Python leave the same log behind, whatever they append."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.broker.log import log as log_module
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.protocol.batches import NO_LEADER_EPOCH, assign, read_header
from holdfast_log.protocol.errors import BrokerError
from tests.models.batches import timed_batch
from tests.models.disk import SimDisk
from tests.models.logs import DIRECTORY, NOW_MS, append_as_leader, new_log, restarted, sim_disk

compiled = pytest.importorskip(
    "holdfast_log.broker.log._segment_append", reason="broker/log/_segment_append.c was not compiled"
)

NUMBERS = ("base_offset", "size", "next_offset", "created_ms", "_first_timestamp", "_appended_from")
INDEX_NUMBERS = ("max_timestamp", "offset_of_max_timestamp", "_bytes_since_entry")
ENTRIES = ("_written", "_last_written", "_first", "_second")
LOG_NUMBERS = ("log_start_offset", "log_end_offset", "recovery_point")
CONFIGS: list[dict[str, Any]] = [
    {},
    {"index_interval_bytes": 0},
    {"index_interval_bytes": 300, "segment_bytes": 3000},
    {"index_interval_bytes": 0, "segment_index_bytes": 12 * 7},
    {"segment_ms": 3000, "segment_jitter_ms": 1000},
]


class Counted:
    """Counts what the compiled function did, and what it left to Python."""

    def __init__(self) -> None:
        self.outcomes = {True: 0, False: 0}

    def append_batch(self, *arguments: Any) -> bool:
        is_appended: bool = compiled.append_batch(*arguments)
        self.outcomes[is_appended] += 1
        return is_appended


class Twins:
    """Two logs that are asked for the same: the first appends by the compiled function, the other never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> None:
        self.counted = Counted()
        self._monkeypatch = monkeypatch
        self.disks = [sim_disk(), sim_disk()]
        self.logs = [new_log(disk, **config) for disk in self.disks]
        for log in self.logs:
            log.roll_jitter = 0.7

    def ask(self, what: Callable[..., object], *arguments: object) -> None:
        """Ask both logs."""
        results: list[object] = []
        for number, append in enumerate((self.counted, None)):
            self._monkeypatch.setattr(log_module, "_compiled", append)
            try:
                results.append(what(self.logs[number], *arguments))
            except BrokerError as error:
                results.append((error.code, str(error)))
        assert results[0] == results[1]
        assert state_of(self.logs[0]) == state_of(self.logs[1])

    def restart(self, *, is_clean: bool) -> None:
        self.logs = [
            restarted(disk, log, is_clean=is_clean) for disk, log in zip(self.disks, self.logs, strict=True)
        ]


def state_of(log: Log) -> Any:
    rows = [[getattr(log, name) for name in LOG_NUMBERS], log.failure is None, log.epochs.entries]
    for segment in log.segments[-3:]:
        indexes = segment.indexes
        rows.append([getattr(segment, name) for name in NUMBERS])
        rows.append([getattr(indexes, name) for name in INDEX_NUMBERS])
        rows.extend([getattr(each, name) for name in ENTRIES] for each in (indexes.offsets, indexes.times))
    return rows


def files_of(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY) if name.startswith("0")}


def random_batch(rng: random.Random, clock_ms: int) -> bytes:
    first = rng.choice((clock_ms, clock_ms - rng.randrange(5000), -1, 0, clock_ms))
    times = [first + (first >= 0) * rng.randrange(3) for _ in range(rng.randrange(1, 4))]
    producer = {"producer_id": 7, "epoch": 0, "sequence": 0} if rng.random() < 0.1 else {}
    return bytes(timed_batch(*times, size=rng.choice((1, 10, 200, 700)), **producer))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_both_leave_the_same_log(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> None:
    rng = random.Random(str(config))
    twins = Twins(monkeypatch, config)
    clock_ms = NOW_MS
    for step in range(1200):
        clock_ms += rng.randrange(20)
        batch, kind = random_batch(rng, clock_ms), rng.random()
        if kind < 0.8:
            twins.ask(led, batch, clock_ms)
        elif kind < 0.98:
            twins.ask(copied, batch, clock_ms)
        elif kind < 0.995:
            twins.ask(truncated, max(0, twins.logs[0].log_end_offset - rng.randrange(10)), clock_ms)
        else:
            twins.restart(is_clean=step % 2 == 0)

    for log in twins.logs:
        close_log(log)
    assert files_of(twins.disks[0]) == files_of(twins.disks[1])
    assert twins.counted.outcomes[True] > 300
    assert twins.counted.outcomes[False] > 3


def led(log: Log, batch: bytes, now_ms: int) -> object:
    """Append a batch as a leader does."""
    return append_as_leader(log, memoryview(bytearray(batch)), 3, now_ms=now_ms)


def truncated(log: Log, offset: int, now_ms: int) -> None:
    truncate_to(log, offset, now_ms=now_ms)


def copied(log: Log, batch: bytes, now_ms: int) -> object:
    """Append a batch as a follower does."""
    buffer = bytearray(batch)
    assign(buffer, 0, log.log_end_offset, 3)
    return append_as_follower(log, memoryview(buffer), now_ms=now_ms, leader_epoch=NO_LEADER_EPOCH)


def test_a_disk_that_is_full_leaves_the_same_log(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(monkeypatch, {"index_interval_bytes": 0})
    batch = bytes(timed_batch(NOW_MS, size=100))

    for _ in range(3):
        twins.ask(led, batch, NOW_MS)
    for disk in twins.disks:
        disk.leave_room(len(batch) // 2)
    twins.ask(led, batch, NOW_MS)

    assert all(log.failure is not None for log in twins.logs)
    assert twins.counted.outcomes[True] == 2


def test_a_batch_that_is_no_batch_of_the_buffer_is_left_to_python() -> None:
    log = new_log(sim_disk())
    batch = timed_batch(NOW_MS)
    header = read_header(batch)
    append_as_leader(log, batch, 3, now_ms=NOW_MS)
    segment = log.segments.active
    before = state_of(log)

    limits = 1, 1 << 30, 1 << 40, NOW_MS
    assert not compiled.append_batch(segment, batch, header._replace(position=1), *limits)
    assert not compiled.append_batch(segment, batch[:-1], header, *limits)
    with pytest.raises(TypeError):
        compiled.append_batch(object(), batch, header, *limits)
    with pytest.raises(TypeError):
        compiled.append_batch(segment, batch, (1, 2), *limits)
    assert state_of(log) == before
    assert compiled.append_batch(segment, batch, header, *limits)


def test_appends_keep_nothing_but_the_entries_of_the_indexes() -> None:
    log = new_log(sim_disk())
    batch = timed_batch(NOW_MS)
    header = read_header(batch)
    append_as_leader(log, batch, 3, now_ms=NOW_MS)

    def act() -> None:
        for offset in range(100):
            compiled.append_batch(log.segments.active, batch, header, offset, 1 << 30, 1 << 40, NOW_MS)
            compiled.append_batch(log.segments.active, batch, header, offset, 1, 1 << 40, NOW_MS)

    act()
    gc.collect()
    before = len(gc.get_objects())
    act()
    gc.collect()
    assert len(gc.get_objects()) <= before + 5
