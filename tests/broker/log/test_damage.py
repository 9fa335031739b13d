"""Bits that change on disk: a reader gets the written records, or an error until the file is repaired."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.log.damage import Damage, decode_damage
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.log_events import LogEvents
from holdfast_log.broker.log.scrubber import Scrubber, ScrubSettings
from holdfast_log.broker.log.time_search import offset_for_timestamp
from holdfast_log.broker.log.truncation import (
    keeps_all_before,
    move_log_start,
    truncate_fully_and_start_at,
    truncate_to,
)
from holdfast_log.protocol.batches import HEADER_SIZE, whole_batches
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.logs import append, look_up_at_once, new_log, reopen, sim_disk
from tests.models.workers import ImmediateWorkers

FIRST_MS = 1_600_000_000_000
BATCHES = 32
END = 2 * BATCHES


class Scene:
    """A log of three segments that was closed cleanly, a scrubber, and the failures and damage they
    reported."""

    def __init__(self, **config: Any) -> None:
        self.disk = sim_disk()
        self.clock = Clock()
        self.workers = ImmediateWorkers()
        self.damaged: list[Log] = []
        self.failures: list[OSError] = []
        log = new_log(self.disk, **({"segment_bytes": 1200, "index_interval_bytes": 100} | config))
        for number in range(BATCHES):
            append(log, FIRST_MS + number, FIRST_MS + number, leader_epoch=number // 8)
        self.values = [bytes(data) for data in batches_of(log)]
        self.segments = [segment.base_offset for segment in log.segments]
        assert len(self.segments) == 3 and log.log_end_offset == END
        close_log(log)
        self.log = log
        self.scrubber = self._scrubber()
        self.start()

    def start(self) -> None:
        """Load the log again, as a broker does after a clean stop."""
        self.scrubber.stop()
        self.log = reopen(self.disk, self.log, is_clean=True, recovery_point=END)
        self.scrubber = self._scrubber()
        self.log.events = LogEvents(
            suspected=self.scrubber.examine, failed=lambda log, error: self.failures.append(error)
        )

    def _scrubber(self) -> Scrubber:
        return Scrubber(
            [self.log],
            self.disk,
            self.workers,
            self.clock,
            lambda: int(self.clock.seconds() * 1000),
            ScrubSettings(1000, 1 << 20),
            self.damaged.append,
        )

    def path(self, number: int, kind: str) -> str:
        return self.log.segments[number].path_of(kind)

    def read(self, offset: int, max_bytes: int = 300) -> int:
        """Read from an offset, compare with the written records, and return the offset after the last record
        read. Raises BrokerError if the log refuses."""
        read = self.log.read(offset, max_bytes, upper_offset=END)
        assert read.slice is not None, f"nothing at {offset}"
        data = read.slice.read()
        headers = whole_batches(
            memoryview(data)
        )  # Like a consumer, ignore a batch that is cut off at the end of the response.
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        for header in headers:
            assert header.base_offset < END
            assert bytes(data[header.position : header.end]) == self.values[header.base_offset // 2]
        return headers[-1].next_offset

    def readable(self) -> set[int]:
        """The offsets that reads of several sizes return. Each record is compared with the written one."""
        found = set()
        for offset in range(END):
            for max_bytes in (1,) if offset % 5 else (1, 170, 5000):
                try:
                    found.update(range(offset, self.read(offset, max_bytes)))
                except BrokerError as error:
                    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        return found

    def look_up(self, number: int) -> int | None:
        found = look_up_at_once(offset_for_timestamp(self.log, FIRST_MS + number))
        return None if found is None else found.offset


def batches_of(log: Log) -> Iterator[bytes]:
    offset = 0
    while offset < log.log_end_offset:
        read = log.read(offset, 1, upper_offset=log.log_end_offset)
        assert read.slice is not None
        yield read.slice.read()
        offset = read.next_offset


KINDS = (".index", ".timeindex")


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0, 2])
def test_one_wrong_bit_anywhere_in_an_index_misleads_no_reader_and_is_mended(
    kind: str, number: int, is_restarted: bool
) -> None:
    size = len((scene := Scene()).disk.read(scene.path(number, kind)))
    assert size > 40
    chance = random.Random(f"{kind}{number}")
    for position in range(size):
        scene = Scene()
        scene.disk.rot(scene.path(number, kind), position, chance.randrange(8))
        if is_restarted:
            scene.start()
        assert scene.log.log_end_offset == END
        refused = scene.readable() != set(range(END))
        try:
            assert [scene.look_up(number) for number in range(BATCHES)] == list(range(0, END, 2))
        except BrokerError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            refused = True
        # A refused read starts an examination of the segment. A scrubber's round finds the damage that no
        # read has met.
        if not refused:
            scene.scrubber.start()
        scene.clock.pump([0.1] * 20)
        assert scene.readable() == set(range(END))
        assert [scene.look_up(number) for number in range(BATCHES)] == list(range(0, END, 2))
        assert not scene.failures and not scene.damaged


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_wrong_bit_anywhere_in_a_log_is_found_and_refused(number: int) -> None:
    scene = Scene()
    size = len(scene.disk.read(scene.path(number, ".log")))
    chance = random.Random(number)
    for position in range(number, size, 13):
        scene = Scene()
        path = scene.path(number, ".log")
        scene.disk.rot(path, position, chance.randrange(8))
        scene.scrubber.start()
        scene.clock.pump([0.1] * 20)
        assert set(scene.damaged) == {scene.log}, position
        [damage] = scene.log.damages
        end = [*scene.segments, END][number + 1]
        behind = end if damage.behind is None else damage.behind.offset
        if position - damage.position >= HEADER_SIZE:
            assert behind == damage.offset + 2, "the records behind the damaged batch can be read"
        assert damage.offset < behind <= end
        assert scene.readable() == {*range(damage.offset), *range(behind, END)}
        assert damage.position <= position and damage.offset <= end
        # After a restart the log knows the damage before the scrubber examines any segment.
        close_log(scene.log)
        scene.start()
        assert scene.log.damages == [damage]
        assert scene.readable() == {*range(damage.offset), *range(behind, END)}
        assert not scene.clock.getDelayedCalls(), "known damage is no reason for another examination"
        assert not scene.failures


BASE_OFFSET, LENGTH, LEADER_EPOCH = range(8), range(8, 12), range(12, 16)
"""The bytes of a batch that its checksum does not cover."""


@pytest.mark.parametrize("number", range(3))
def test_headers_are_checked_although_the_page_cache_has_the_records(number: int) -> None:
    """A broker sends bytes from the page cache without looking at them, and no client can know the offset or
    the leader epoch of a batch better."""
    scene = Scene()
    path = scene.path(number, ".log")
    assert not scene.disk.cold
    positions = [header.position for header in scene.log.segments[number].headers(0)]
    chance = random.Random(number)
    for position in chance.sample(positions, 2):
        for byte in (*BASE_OFFSET, *LENGTH, *LEADER_EPOCH):
            bit = chance.randrange(8)
            scene.disk.rewrite(path, position + byte, bit)
            scene.start()
            if scene.log.log_end_offset == END:  # If not, loading has found it.
                missing = set(range(END)) - scene.readable()
                first = scene.log.segments[number].base_offset + 2 * positions.index(position)
                assert missing & {first, first + 1}, f"byte {byte} of the batch at {position}"
                scene.clock.advance(0.1)
                assert scene.damaged and scene.damaged[-1] is scene.log
                damage = scene.log.segments[number].damage
                assert damage is not None and damage.offset == first
                for segment in scene.log.segments:
                    scene.disk.remove(segment.path_of(".damaged"))
            scene.disk.rewrite(path, position + byte, bit)


@pytest.mark.parametrize("cut", [0, 1, 60, 130, 500])
def test_readers_skip_no_records_of_a_segment_that_lost_its_end(cut: int) -> None:
    scene = Scene()
    path = scene.path(1, ".log")
    size = len(scene.disk.read(path))
    first, end = scene.segments[1:3]
    scene.disk.cut(path, size - size % 130 - cut if cut else size // 2)
    for _ in range(2):
        offset, refused = first, False
        while offset < end:
            try:
                offset = scene.read(offset)
            except BrokerError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                refused = True
                break
        assert refused and offset < end
        scene.clock.pump([0.1] * 20)
        [damage] = scene.log.damages
        assert damage.offset >= offset
        assert decode_damage(first, scene.disk.read(scene.path(1, ".damaged"))) == damage
        scene.disk.remove(scene.path(1, ".damaged"))
        close_log(scene.log)
        scene.start()
    assert not scene.failures


@pytest.mark.parametrize("records", [1, 2])
def test_a_read_before_damage_says_that_it_ends_there(records: int) -> None:
    """A read that continues there is refused. Otherwise the index of keys would miss the damaged records."""
    log = new_log(sim_disk(), segment_bytes=1200, index_interval_bytes=100)
    for number in range(40):
        append(log, *[FIRST_MS + number] * records)
    segment, end = log.segments[1], log.log_end_offset
    for header in list(segment.headers(0))[1:]:
        segment.damage = Damage(segment.base_offset, header.position, header.base_offset, "a bit has changed")
        for upper_offset in (header.base_offset, header.next_offset, log.segments[2].base_offset, end):
            for start in range(segment.base_offset, header.base_offset):
                read = log.read(start, 1 << 20, upper_offset=upper_offset)
                assert read.next_offset == header.base_offset
                assert read.slice is not None
                assert whole_batches(memoryview(read.slice.read()))[-1].next_offset == header.base_offset
        with pytest.raises(BrokerError):
            log.read(header.base_offset, 1 << 20, upper_offset=end)


def test_a_scrubber_finds_a_file_that_is_empty_and_should_not_be() -> None:
    scene = Scene()
    first, end = scene.segments[1:3]
    # The process that loads the log has no reason to suspect the segment: compaction may have emptied it.
    scene.disk.cut(scene.path(1, ".log"), 0)
    for kind in KINDS:
        scene.disk.remove(scene.path(1, kind))
    scene.log.settings = replace(scene.log.settings, cleanup_policy=("compact",))
    scene.start()
    assert scene.log.damages == []
    for segment in scene.log.segments:
        segment.is_dense = True
    scene.scrubber.start()
    scene.clock.pump([0.1] * 20)
    assert [(damage.position, damage.offset) for damage in scene.log.damages] == [(0, first)]
    assert scene.readable() == {*range(first), *range(end, END)}


def test_a_copy_of_a_segment_may_lack_the_records_before_the_log_start() -> None:
    """The leader from which it was copied has removed them: a repeated copy would lack them too."""
    scene = Scene()
    start = scene.segments[1] + 4
    move_log_start(scene.log, start)
    segment, path = scene.log.segments[1], scene.path(1, ".log")
    first = next(header for header in segment.headers(0) if header.base_offset == start)
    data = scene.disk.read(path)[first.position :]
    scene.disk.write_atomically(path, data)
    segment.replaced(len(data))

    scene.scrubber.examine(scene.log, segment.base_offset, "it was copied")
    scene.clock.pump([0.1] * 20)

    assert scene.log.damages == []
    assert all(scene.read(offset) > offset for offset in range(start, END))


@pytest.mark.parametrize("config", [{}, {"index_interval_bytes": 4096}, {"index_interval_bytes": 350}])
def test_a_segment_of_a_compacted_log_that_lost_its_last_batches_is_found_at_loading(
    config: dict[str, int],
) -> None:
    """Compaction leaves gaps between batches, so offsets alone do not show the loss: readers would pass over
    the lost records."""
    scene = Scene(cleanup_policy=("compact",), **config)
    starts = [header.position for header in scene.log.segments[1].headers(0)]
    assert len(starts) > 5
    first, end = scene.segments[1:3]
    for number, position in enumerate(starts):
        scene = Scene(cleanup_policy=("compact",), **config)
        scene.disk.cut(scene.path(1, ".log"), position)
        scene.start()
        lost = first + 2 * number
        for is_examined in (False, True):
            if is_examined:
                # The rebuilt indexes end where the batches end.
                scene.scrubber.start()
                scene.clock.pump([0.1] * 20)
            assert [(damage.position, damage.offset) for damage in scene.log.damages] == [(position, lost)]
            assert scene.readable() == {*range(lost), *range(end, END)}


def test_a_scrubber_finds_that_a_compacted_log_lost_a_batch_which_only_its_time_index_names() -> None:
    """Kafka, and older Holdfast, write no entry for the last batch into the offset index."""
    scene = Scene(cleanup_policy=("compact",), index_interval_bytes=4096)
    end = scene.segments[2]
    scene.disk.cut(scene.path(1, ".index"), 0)
    last = list(scene.log.segments[1].headers(0))[-1]
    scene.disk.cut(scene.path(1, ".log"), last.position)
    scene.start()
    assert scene.log.damages == []
    scene.scrubber.start()
    scene.clock.pump([0.1] * 20)
    damages = [(damage.position, damage.offset) for damage in scene.log.damages]
    assert damages == [(last.position, last.base_offset)]
    assert scene.readable() == {*range(last.base_offset), *range(end, END)}


def test_an_offset_beyond_those_of_a_segment_is_damage_though_a_compacted_log_has_gaps() -> None:
    """No checksum covers the offset. The indexes have no room for it either."""
    for number in range(BATCHES * 3 // 4 + 1, BATCHES):
        scene = Scene(cleanup_policy=("compact",), index_interval_bytes=1)
        last = scene.log.segments[-1]
        [header] = [each for each in last.headers(0) if each.base_offset == 2 * number]
        scene.disk.rot(scene.path(2, ".log"), header.position + 2, 0)
        scene.scrubber.start()
        scene.clock.pump([0.1] * 20)
        [damage] = scene.log.damages
        assert (damage.offset, damage.position) == (header.base_offset, header.position)
        assert scene.readable() == set(range(header.base_offset)) and not scene.failures


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_the_index_of_a_closed_segment_ends_with_its_last_batch(is_rebuilt: bool) -> None:
    scene = Scene(index_interval_bytes=4096)
    if is_rebuilt:
        for kind in KINDS:
            scene.disk.remove(scene.path(1, kind))
        scene.start()
    segment = scene.log.segments[1]
    last = list(segment.headers(0))[-1]
    assert segment.indexes.offsets.pairs() == [(last.last_offset - segment.base_offset, last.position)]


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("until", ["inside", "end"])
def test_a_log_truncated_behind_damage_ends_at_the_damage(is_marked: bool, until: str) -> None:
    scene = Scene()
    path = scene.path(1, ".log")
    first, end = scene.segments[1:3]
    scene.disk.cut(path, scene.disk.size(path) // ((end - first) // 2) * 2)
    if is_marked:
        scene.scrubber.start()
        scene.clock.pump([0.1] * 20)
        assert len(scene.log.damages) == 1
    target = end if until == "end" else end - 2
    assert not keeps_all_before(scene.log, target)
    assert keeps_all_before(scene.log, first + 2) and keeps_all_before(scene.log, end + 2)
    truncate_to(scene.log, target)
    assert scene.log.log_end_offset == first + 4
    assert scene.log.damages == [] and not scene.disk.exists(scene.path(1, ".damaged"))
    assert append(scene.log, FIRST_MS, FIRST_MS, leader_epoch=9) == first + 4
    assert scene.log.read(first + 4, 1000, upper_offset=END).slice is not None
    assert not scene.failures


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_log_that_is_truncated_while_its_damage_is_being_marked_has_no_mark(*, is_emptied: bool) -> None:
    """The next process would refuse to read the records that were written there since."""
    scene = Scene()
    scene.disk.rot(scene.path(1, ".log"), 8, 0)
    scene.workers.is_held = True
    scene.scrubber.start()
    while not scene.damaged:
        scene.clock.pump([0.1] * 2)
        scene.workers.work()
    if is_emptied:
        truncate_fully_and_start_at(scene.log, scene.segments[1])
    else:
        truncate_to(scene.log, scene.segments[1] + 2)
    scene.workers.release()
    scene.clock.pump([0.1] * 20)
    assert not [name for name in scene.disk.list(scene.log.directory) if name.endswith(".damaged")]
