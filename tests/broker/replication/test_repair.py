"""A damaged segment is replaced by a copy of the leader's records, and by nothing that is damaged too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.log import names
from holdfast_log.broker.log.aborted_index import decode_entries
from holdfast_log.broker.log.aborted_search import aborted_between
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.damage import Damage
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.recovery import create_log
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.replication.repair import REPAIR_INTERVAL_MS, Repairs
from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.log.test_manager import Broker
from tests.broker.replication.replica_logs import TOPIC_ID
from tests.models.logs import NOW_MS, append, append_as_leader, headers_of, read_all, reopen, sim_disk
from tests.models.transactional import transactional_batch

LOCAL, LEADER = 1, 2
AT = TopicPartition("t", 0)
BATCHES = 32
EVERYTHING = list(range(0, 2 * BATCHES, 2))
"""The first offsets of the follower's batches, of two records each."""
SETTINGS = {"log.segment.bytes": 1200, "log.index.interval.bytes": 100}
COMPACTED = {"log.cleanup.policy": "compact"}
ASSIGNED = LeaderAndIsr(LEADER, 9, (LOCAL, LEADER), 9, (LOCAL, LEADER))
KINDS = (names.INDEX, names.TIME_INDEX)


class FoundReplicas:
    """The one replica of a broker."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def find(self, topic: str, index: int) -> Partition:
        assert (topic, index) == self._partition.key
        return self._partition


class Scene:
    """A follower with a log of three segments, and its leader, whose log lacks the batches that `removed`
    names by their first offset."""

    def __init__(self, removed: Callable[[int], bool] = lambda offset: False, **config: Any) -> None:
        self.disk = sim_disk()
        self.broker = Broker(self.disk, ("/data",), **SETTINGS, **config)
        logs = self.broker.logs
        self.log = logs.get_or_create(AT, TOPIC_ID)
        self.fill()
        assert len(self.log.segments) == 3
        flush_at_once(self.log)
        self.follower = Partition("t", 0, TOPIC_ID, LOCAL, self.log)
        self.leader_log = self._copy_of_log(removed)
        self.follower.follow(ASSIGNED)
        self.fetches = 0
        self.announced = 0
        self.repairs = Repairs(
            logs,
            FoundReplicas(self.follower),  # type: ignore[arg-type]
            self.broker.workers,
            self.broker.clock,
            self.answer,
            self._announce,
        )
        logs.add_damage_listener(self.repairs.log_damaged)

    def fill(self) -> None:
        for number in range(BATCHES):
            append(self.log, NOW_MS + number, NOW_MS + number, leader_epoch=number // 8)

    def _copy_of_log(self, removed: Callable[[int], bool]) -> Log:
        copy = create_log(sim_disk(2), LoadRequest(AT, "/data/t-0", self.log.settings, NOW_MS))
        data = read_all(self.log)
        for header in headers_of(self.log):
            if not removed(header.base_offset):
                records = memoryview(bytearray(data[: header.size]))
                append_as_follower(copy, records, now_ms=NOW_MS)
            data = data[header.size :]
        return copy

    def answer(self, broker_id: int, request: FetchRequest) -> Deferred[FetchResponse]:
        """The leader's response to a fetch of the repair."""
        assert broker_id == LEADER
        self.fetches += 1
        [topic] = request.topics
        [wanted] = topic.partitions
        log = self.leader_log
        read = log.read(wanted.fetch_offset, 300, upper_offset=log.log_end_offset)
        records = b"" if read.slice is None else memoryview(bytearray(read.slice.read()))
        data = PartitionData(partition_index=0, error_code=0, high_watermark=-1, records=records)
        return succeed(
            FetchResponse(
                throttle_time_ms=0, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]
            )
        )

    def _announce(self) -> None:
        self.announced += 1

    @property
    def segment(self) -> Segment:
        return self.log.segments[1]

    def examine(self) -> None:
        """Have the damaged segment examined, and repaired if the leader answers."""
        self.broker.logs.scrubber.examine(self.log, self.segment.base_offset, "it is damaged")
        self.pass_s(1.0)

    def pass_s(self, seconds: float) -> None:
        self.broker.clock.pump([0.1] * int(10 * seconds))

    def read_all(self) -> list[int]:
        """The first offsets of the batches that a reader gets from the first one on."""
        return [header.base_offset for header in headers_of(self.log)]

    def files(self) -> list[str]:
        """Names of the files of the damaged segment that only a repair makes."""
        found = self.disk.list(self.log.directory)
        return [name for name in found if name.endswith((names.TEMPORARY, names.DAMAGED))]


class AbortingScene(Scene):
    """Its log has nothing but aborted transactions."""

    def fill(self) -> None:
        for producer_id in range(20):
            for batch in (
                transactional_batch(producer_id=producer_id),
                end_marker_batch(producer_id, 0, EndMarker(is_commit=False), NOW_MS),
            ):
                origin = AppendOrigin.COORDINATOR
                append_as_leader(self.log, memoryview(batch), 0, origin=origin, now_ms=NOW_MS)


def test_a_repair_leaves_readers_told_of_every_aborted_transaction() -> None:
    scene = AbortingScene()
    path = scene.segment.path_of(names.TRANSACTION_INDEX)
    before, end = scene.disk.read(path), scene.log.log_end_offset
    assert len(decode_entries(before)) > 3
    scene.disk.rot(scene.segment.path, 200, 3)
    scene.examine()
    assert scene.log.damages == [] and scene.files() == []
    assert scene.disk.read(path) == before
    told = aborted_between(scene.log, 0, end)
    assert len(told[0]) == 20
    assert told == aborted_between(scene.leader_log, 0, end)
    scene.disk.remove(path)
    # Recovery after a kill makes the index anew from the repaired batches.
    assert aborted_between(reopen(scene.disk, scene.log, is_clean=False), 0, end) == told
    assert scene.disk.read(path) == before


@pytest.mark.parametrize("position", [8, 17, 200, 650])
def test_a_damaged_segment_is_replaced_by_the_leaders_records(position: int) -> None:
    scene = Scene()
    before = {kind: scene.disk.read(scene.segment.path_of(kind)) for kind in (names.LOG, *KINDS)}
    scene.disk.rot(scene.segment.path, position, 3)
    scene.examine()
    assert scene.log.damages == [] and scene.files() == []
    assert {kind: scene.disk.read(scene.segment.path_of(kind)) for kind in before} == before
    assert scene.read_all() == EVERYTHING


@pytest.mark.parametrize(
    "is_removed",
    [
        lambda offset, first, end: first <= offset < end,
        lambda offset, first, end: first < offset < end,
        lambda offset, first, end: first + 4 <= offset < end,
        lambda offset, first, end: first <= offset < end - 2,
        lambda offset, first, end: first <= offset < end and offset % 4 == 0,
        lambda offset, first, end: first <= offset < end + 4,
    ],
)
def test_the_copy_of_a_compacted_segment_may_have_fewer_records(
    is_removed: Callable[[int, int, int], bool],
) -> None:
    """The old indexes name batches that the leader has removed: compared with them, the copy would count as
    damaged for ever."""
    _, first, end = (segment.base_offset for segment in Scene(**COMPACTED).log.segments)
    scene = Scene(lambda offset: is_removed(offset, first, end), **COMPACTED)
    scene.disk.rot(scene.segment.path, 8, 3)
    scene.examine()
    fetches = scene.fetches
    scene.pass_s(60.0)
    assert scene.log.damages == [] and scene.files() == []
    assert scene.fetches == fetches, "there is nothing left to copy"
    # Damage in one segment is no reason to remove records from another.
    left = [base for base in EVERYTHING if base >= end or not is_removed(base, first, end)]
    assert scene.read_all() == left
    for offset in range(first, end):
        read = scene.log.read(offset, 1, upper_offset=2 * BATCHES)
        assert read.next_offset == next(base + 2 for base in left if base + 1 >= offset)


def test_the_indexes_of_a_copy_are_used_at_once() -> None:
    """Without them a read would search the segment from its beginning, on the reactor."""
    scene = Scene(lambda offset: offset == 26, **COMPACTED)
    assert scene.segment.base_offset < 26 < scene.segment.next_offset
    scene.disk.rot(scene.segment.path, 8, 3)
    scene.examine()
    starts = [header.position for header in scene.segment.headers(0)]
    pairs = scene.segment.indexes.offsets.pairs()
    assert len(pairs) > len(starts) // 2 and {position for _, position in pairs} <= set(starts)
    reopened = reopen(scene.disk, scene.log, is_clean=True, recovery_point=2 * BATCHES)
    assert [header.base_offset for header in headers_of(reopened)] == scene.read_all()


def test_a_copy_that_the_disk_has_damaged_replaces_nothing() -> None:
    scene = Scene()
    path, copy = scene.segment.path, scene.segment.path + names.TEMPORARY
    sound = scene.disk.read(path)
    scene.disk.rot(path, 8, 3)
    damaged = scene.disk.read(path)
    answer = scene.answer

    def rotting(broker_id: int, request: FetchRequest) -> Deferred[FetchResponse]:
        if scene.disk.exists(copy) and scene.disk.size(copy):
            scene.disk.rot(copy, 40, 1)
        return answer(broker_id, request)

    scene.repairs._send = rotting
    scene.examine()
    assert len(scene.log.damages) == 1
    assert scene.disk.read(path) == damaged
    with pytest.raises(BrokerError):
        scene.log.read(scene.segment.base_offset, 100, upper_offset=2 * BATCHES)

    scene.repairs._send = answer
    scene.pass_s(1.0)
    assert len(scene.log.damages) == 1, "the next attempt is made after a pause"
    scene.broker.clock.advance(REPAIR_INTERVAL_MS / 1000)
    scene.repairs.look()
    scene.pass_s(1.0)
    assert scene.log.damages == [] and scene.disk.read(path) == sound


def test_a_marked_segment_that_takes_appends_is_closed_and_examined_first() -> None:
    """The process before this one was stopped while it removed a mark that no longer applied."""
    scene = Scene()
    active = scene.log.segments.active
    active.damage = Damage(active.base_offset, 0, active.base_offset, "a bit has changed")
    scene.broker.logs.damaged[scene.log] = None
    scene.repairs.look()
    scene.pass_s(1.0)
    assert scene.log.damages == []
    assert (scene.fetches, scene.log.segments.active is active) == (0, False)
    assert append(scene.log, leader_epoch=9) == 2 * BATCHES
    assert scene.read_all() == [*EVERYTHING, 2 * BATCHES]


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_file_operation_of_a_repair_leaves_the_damage_or_the_copy(
    *, loses_power: bool
) -> None:
    for changes in range(100):
        scene = Scene(lambda base: base in (26, 28), **COMPACTED)
        scene.disk.write_back()
        first, end = scene.segment.base_offset, scene.segment.next_offset
        assert first < 26 < 28 < end - 2
        scene.disk.rot(scene.segment.path, 8, 3)
        scene.disk.strike(changes, lambda: None)
        scene.examine()
        is_struck = bool(scene.log.damages) or scene.log.failure is not None
        scene.disk.spare()
        scene.disk.switch_on()
        scene.disk.lose_power() if loses_power else scene.disk.kill_process()
        scene.log = reopen(scene.disk, scene.log, is_clean=False, recovery_point=2 * BATCHES)
        repaired = [base for base in EVERYTHING if base not in (26, 28)]
        unread = [base for base in EVERYTHING if not first <= base < end]
        found = readable(scene)
        assert found in ((unread, repaired) if is_struck else (repaired,))
        if not is_struck:
            break
    else:
        pytest.fail("the repair takes more than 100 changes of files")
    assert changes > 6, "the machine ended between the copy and the last rename"


def readable(scene: Scene) -> list[int]:
    """The first offsets of the batches that a reader gets who passes over what is refused. It reports a
    damaged index, which is rebuilt, and tries again."""
    found, offset = [], 0
    while offset < 2 * BATCHES:
        try:
            read = scene.log.read(offset, 1, upper_offset=2 * BATCHES)
        except BrokerError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            segment = next(segment for segment in scene.log.segments if segment.next_offset > offset)
            offset = segment.next_offset
            continue
        assert read.slice is not None
        [header] = whole_batches(memoryview(read.slice.read()))
        found.append(header.base_offset)
        offset = read.next_offset
    return found
