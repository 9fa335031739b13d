"""The fetcher of one leader: the partitions in each fetch, and the effect of each response."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.truncation import advance_log_start
from holdfast_log.broker.replication.fetcher import Asked, FetchLimits, ReplicaFetcher
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.throttle import follower_throttle
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.broker.replication.replica_logs import (
    EVERYONE,
    NOW_MS,
    append,
    elect,
    raw,
    replica,
    serve,
    values,
)

LEADER, FOLLOWER = 1, 2
LIMITS = FetchLimits(wait_ms_max=500, bytes_min=1, backoff_ms=1000)
BROKER_EPOCH = 77


class Pair:
    """A leader and a follower of several partitions, and the follower's fetcher."""

    def __init__(self, partitions: int, topics: int = 1) -> None:
        self.now_ms = NOW_MS
        self.fetcher = ReplicaFetcher(
            FOLLOWER, LIMITS, lambda: BROKER_EPOCH, follower_throttle(FOLLOWER), lambda: NOW_MS,
            moved=lambda partition: self.moved.append((partition.index, partition.log.log_start_offset)),
        )  # fmt: skip
        self.moved: list[tuple[int, int]] = []
        self.leaders: list[Partition] = []
        self.followers: list[Partition] = []
        for topic in range(topics):
            for index in range(partitions):
                name, topic_id = f"t{topic}", uuid.UUID(int=topic + 1)
                both = [replica(broker_id, name, index, topic_id) for broker_id in (LEADER, FOLLOWER)]
                elect(LEADER, 0, both)
                self.leaders.append(both[0])
                self.followers.append(both[1])

    def follow(self, *numbers: int) -> None:
        for number in numbers:
            self.fetcher.follow(self.followers[number], self.now_ms)

    def next_fetch(self) -> Asked | None:
        return self.fetcher.next_fetch(self.now_ms)

    def ask(self) -> Asked:
        fetch = self.next_fetch()
        assert fetch is not None
        return fetch

    def next_fetch_is_far(self) -> bool:
        due_ms = self.fetcher.next_fetch_ms()
        return due_ms is None or due_ms > self.now_ms

    def answer(self, fetch: Asked) -> FetchResponse:
        response = serve(self.leaders, fetch.request, self.now_ms)
        self.fetcher.answered(fetch, response, self.now_ms)
        return response

    def fail(self, fetch: Asked, *, errors: dict[int, int]) -> None:
        """Answer a fetch of the first topic, for some partitions with an error."""
        response = serve(self.leaders, fetch.request, self.now_ms)
        for data in response.responses[0].partitions:
            if data.partition_index in errors:
                data.error_code, data.records = errors[data.partition_index], b""
        self.fetcher.answered(fetch, response, self.now_ms)


def indexes(fetch: Asked) -> list[int]:
    return [wanted.partition for topic in fetch.request.topics for wanted in topic.partitions]


def test_one_fetch_at_a_time_covers_all_partitions_of_a_leader() -> None:
    pair = Pair(partitions=3)
    assert pair.next_fetch() is None
    assert pair.fetcher.next_fetch_ms() is None
    pair.follow(0, 1, 2)
    assert pair.fetcher.next_fetch_ms() == pair.now_ms
    fetch = pair.ask()
    assert indexes(fetch) == [0, 1, 2]
    assert (fetch.request.max_wait_ms, fetch.request.min_bytes) == (500, 1)
    state = fetch.request.replica_state
    assert (state.replica_id, state.replica_epoch) == (FOLLOWER, BROKER_EPOCH)
    assert pair.next_fetch() is None
    assert pair.fetcher.next_fetch_ms() is None
    pair.answer(fetch)
    assert indexes(pair.ask()) == [0, 1, 2]


def test_the_next_fetch_starts_at_the_end_of_the_last_response() -> None:
    pair = Pair(partitions=1)
    pair.follow(0)
    append(pair.leaders[0], b"a", b"b")
    pair.answer(pair.ask())
    fetch = pair.ask()
    (wanted,) = fetch.request.topics[0].partitions
    assert (wanted.fetch_offset, wanted.last_fetched_epoch, wanted.current_leader_epoch) == (2, 0, 0)
    assert raw(pair.followers[0]) == raw(pair.leaders[0])


def test_a_log_start_that_moves_with_the_leaders_is_told_once() -> None:
    pair = Pair(partitions=2)
    pair.follow(0, 1)
    append(pair.leaders[1], b"a", b"b")
    append(pair.leaders[1], b"c")
    pair.answer(pair.ask())
    assert pair.moved == []
    advance_log_start(pair.leaders[1].log, 2)
    for _ in range(2):
        pair.answer(pair.ask())
        assert pair.moved == [(1, 2)]


def test_a_new_partition_does_not_wait_for_the_fetch_under_way() -> None:
    pair = Pair(partitions=3)
    pair.follow(0, 1)
    waiting = pair.ask()
    pair.follow(2)
    prompt = pair.ask()
    assert indexes(prompt) == [2]
    assert (prompt.request.max_wait_ms, prompt.request.min_bytes) == (0, 0)
    assert pair.next_fetch() is None
    pair.answer(waiting)
    assert pair.next_fetch() is None  # both fetches must be answered before one covers all partitions
    pair.answer(prompt)
    assert indexes(pair.ask()) == [0, 1, 2]


def test_an_error_pauses_only_its_partition_and_repeated_errors_lengthen_the_pause() -> None:
    pair = Pair(partitions=2)
    pair.follow(0, 1)
    fetch = pair.ask()
    pauses = []
    for _ in range(8):
        pair.fail(fetch, errors={1: ErrorCode.UNKNOWN_LEADER_EPOCH})
        waiting = pair.ask()
        assert indexes(waiting) == [0]
        due_ms = pair.fetcher.next_fetch_ms()
        assert due_ms is not None
        pauses.append(due_ms - pair.now_ms)
        pair.now_ms = due_ms - 1
        assert pair.next_fetch() is None
        pair.now_ms = due_ms
        fetch = pair.ask()
        assert indexes(fetch) == [1]
        pair.answer(waiting)
    assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000]
    pair.answer(fetch)
    fetch = pair.ask()
    assert indexes(fetch) == [0, 1]
    pair.fail(fetch, errors={1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    assert indexes(pair.ask()) == [0]
    assert pair.fetcher.next_fetch_ms() == pair.now_ms + 20


def test_a_replica_that_deletes_its_records_again_and_again_pauses_longer_each_time() -> None:
    pair = Pair(partitions=1)
    pair.follow(0)
    pauses = []
    for _ in range(9):
        fetch = pair.ask()
        before_ms = pair.now_ms
        data = PartitionData(
            partition_index=0,
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
            high_watermark=-1,
            log_start_offset=0,
            records=b"",
        )
        topic = FetchableTopicResponse(topic_id=pair.followers[0].topic_id, partitions=[data])
        pair.fetcher.answered(fetch, FetchResponse(throttle_time_ms=0, responses=[topic]), pair.now_ms)
        while pair.next_fetch_is_far():
            pair.now_ms += 1
        pauses.append(pair.now_ms - before_ms)
        append(pair.leaders[0], b"a")
        pair.answer(pair.ask())
    assert pauses == [0, 20, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_fenced_partition_is_not_fetched_until_the_controller_assigns_it_again() -> None:
    pair = Pair(partitions=2)
    pair.follow(0, 1)
    pair.fail(pair.ask(), errors={0: ErrorCode.FENCED_LEADER_EPOCH})
    pair.now_ms += 1_000_000
    waiting = pair.ask()
    assert indexes(waiting) == [1]
    pair.follow(0)
    assert indexes(pair.ask()) == [0]


def test_a_response_sent_before_a_change_of_leader_is_ignored() -> None:
    pair = Pair(partitions=1)
    pair.follow(0)
    append(pair.leaders[0], b"a")
    old = pair.ask()
    response = serve(pair.leaders, old.request)
    elect(LEADER, 1, [pair.leaders[0], pair.followers[0]])
    pair.follow(0)
    new = pair.ask()
    pair.fetcher.answered(old, response, pair.now_ms)
    assert pair.followers[0].log.log_end_offset == 0
    pair.answer(new)
    assert pair.followers[0].log.log_end_offset == 1


def test_a_response_for_a_partition_no_longer_copied_is_ignored() -> None:
    pair = Pair(partitions=2)
    pair.follow(0, 1)
    append(pair.leaders[0], b"a")
    append(pair.leaders[1], b"b")
    fetch = pair.ask()
    pair.fetcher.forget(pair.followers[0])
    pair.answer(fetch)
    assert [each.log.log_end_offset for each in pair.followers] == [0, 1]
    assert len(pair.fetcher) == 1


def test_a_late_flush_of_a_deleted_log_does_not_stop_the_copying_of_a_topic_of_the_same_name() -> None:
    """The topic is deleted and created again while a flush of its first log is running. That flush ends
    late, and the log of the new topic is being flushed then."""
    pair = Pair(1)
    deleted, remade = (replica(FOLLOWER, "t0", 0, uuid.UUID(int=number)) for number in (8, 9))
    leader = replica(LEADER, "t0", 0, uuid.UUID(int=9))
    for each in (deleted, remade, leader):
        each.log.settings = dataclasses.replace(each.log.settings, flush_before_ack=True)
    pair.leaders = [elect(LEADER, 0, [leader, remade])]
    elect(LEADER, 0, [replica(LEADER), deleted])
    append(leader, b"a")
    pair.fetcher.follow(deleted, NOW_MS)
    pair.fetcher.forget(deleted)
    pair.fetcher.follow(remade, NOW_MS)
    pair.answer(pair.ask())
    assert pair.fetcher.take_unflushed() == [remade]
    deleted.log.fail(OSError("the log was deleted"))
    pair.fetcher.flushed(deleted)
    flush_at_once(remade.log)
    pair.fetcher.flushed(remade)
    assert pair.ask().named[remade.topic_id, 0][1].fetch_offset == 1


def test_a_failed_fetch_is_repeated_after_a_growing_pause() -> None:
    pair = Pair(partitions=2)
    pair.follow(0, 1)
    pauses = []
    for _ in range(8):
        pair.fetcher.failed(pair.ask(), pair.now_ms)
        assert pair.next_fetch() is None
        due_ms = pair.fetcher.next_fetch_ms()
        assert due_ms is not None
        pauses.append(due_ms - pair.now_ms)
        pair.now_ms = due_ms
    assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000]
    pair.answer(pair.ask())
    pair.fetcher.failed(pair.ask(), pair.now_ms)
    assert pair.fetcher.next_fetch_ms() == pair.now_ms + 20


def test_a_response_with_a_top_level_error_is_retried_after_a_pause() -> None:
    pair = Pair(partitions=1)
    pair.follow(0)
    fetch = pair.ask()
    refused = FetchResponse(throttle_time_ms=0, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[])
    pair.fetcher.answered(fetch, refused, pair.now_ms)
    assert pair.next_fetch() is None
    pair.now_ms += 20
    assert indexes(pair.ask()) == [0]


def test_the_pause_after_errors_grows_with_the_number_of_partitions() -> None:
    many = 1100
    pair = Pair(partitions=many)
    pair.follow(*range(many))
    pauses = []
    for _ in range(3):
        pair.fail(pair.ask(), errors=dict.fromkeys(range(many), ErrorCode.NOT_LEADER_OR_FOLLOWER))
        due_ms = pair.fetcher.next_fetch_ms()
        assert due_ms is not None
        pauses.append(due_ms - pair.now_ms)
        pair.now_ms = due_ms

    assert pauses == [22, 44, 88]
    assert LIMITS.pause_ms(1, partitions=5000) == 100


def test_a_partition_missing_from_the_response_pauses() -> None:
    pair = Pair(partitions=2)
    pair.follow(0, 1)
    fetch = pair.ask()
    response = serve(pair.leaders, fetch.request)
    del response.responses[0].partitions[0]
    pair.fetcher.answered(fetch, response, pair.now_ms)
    assert indexes(pair.ask()) == [1]


def test_partitions_that_were_not_requested_are_ignored() -> None:
    pair = Pair(partitions=1)
    pair.follow(0)
    fetch = pair.ask()
    response = serve(pair.leaders, fetch.request)
    stray = PartitionData(partition_index=9, error_code=0, high_watermark=0, records=b"")
    response.responses.append(FetchableTopicResponse(topic_id=uuid.UUID(int=99), partitions=[stray]))
    pair.fetcher.answered(fetch, response, pair.now_ms)
    assert indexes(pair.ask()) == [0]


def test_a_fetch_lists_partitions_that_just_received_records_last() -> None:
    pair = Pair(partitions=3, topics=2)
    pair.follow(*range(6))
    append(pair.leaders[0], b"a")
    append(pair.leaders[4], b"b")
    pair.answer(pair.ask())
    fetch = pair.ask()
    assert [
        (topic.topic, wanted.partition) for topic in fetch.request.topics for wanted in topic.partitions
    ] == [("t0", 1), ("t0", 2), ("t1", 0), ("t1", 2), ("t0", 0), ("t1", 1)]


@pytest.mark.parametrize("failures", [1, 5, 1000])
def test_a_pause_never_exceeds_the_configured_backoff(failures: int) -> None:
    assert FetchLimits(backoff_ms=0).pause_ms(failures) == 0
    assert 20 <= FetchLimits(backoff_ms=1000).pause_ms(failures) <= 1000


class History(RuleBasedStateMachine):
    """Three replicas, all in sync throughout, whose leaders change at any moment, with fetches under way.

    Every committed record stays at its offset. Once faults stop, all logs become equal.
    """

    @initialize()
    def begin(self) -> None:
        self.replicas = [replica(broker_id) for broker_id in EVERYONE]
        self.fetchers = {
            broker_id: ReplicaFetcher(
                broker_id, LIMITS, lambda: 1, follower_throttle(broker_id), lambda: NOW_MS
            )
            for broker_id in EVERYONE
        }
        self.under_way: list[tuple[int, Partition, Asked, FetchResponse | None]] = []
        self.committed: dict[int, bytes | None] = {}
        self.epoch = -1
        self.count = 0
        self.now_ms = NOW_MS
        self._elect(1)

    def _elect(self, broker_id: int) -> None:
        self.epoch += 1
        self.leader = elect(broker_id, self.epoch, self.replicas, now_ms=self.now_ms)
        for each in self.replicas:
            if each is not self.leader:
                self.fetchers[each.local_id].follow(each, self.now_ms)
            else:
                self.fetchers[each.local_id].forget(each)

    @property
    def followers(self) -> Sequence[Partition]:
        return [each for each in self.replicas if each is not self.leader]

    @rule(size=st.integers(1, 3))
    def append(self, size: int) -> None:
        self.count += 1
        append(self.leader, *[b"%d.%d" % (self.count, number) for number in range(size)])

    @rule(broker_id=st.sampled_from(EVERYONE))
    def change_leader(self, broker_id: int) -> None:
        self._elect(broker_id)

    @rule(broker_id=st.sampled_from(EVERYONE))
    def forget_the_high_watermark(self, broker_id: int) -> None:
        """Restart a replica whose high-watermark checkpoint is out of date."""
        each = self.replicas[broker_id - 1]
        if each is not self.leader:
            each.high_watermark = 0

    @rule()
    def everyone_fetches(self) -> None:
        """Each follower that has no fetch under way sends one."""
        self.now_ms += 100
        for follower in self.followers:
            fetcher = self.fetchers[follower.local_id]
            fetch = fetcher.next_fetch(self.now_ms)
            if fetch is not None:
                response = serve([self.leader], fetch.request, self.now_ms, max_bytes=1)
                fetcher.answered(fetch, response, self.now_ms)

    @rule(number=st.integers(0, 1))
    def send(self, number: int) -> None:
        follower = self.followers[number]
        fetch = self.fetchers[follower.local_id].next_fetch(self.now_ms)
        if fetch is not None:
            self.under_way.append((follower.local_id, self.leader, fetch, None))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def carry(self, data: st.DataObject) -> None:
        """Deliver a request or its answer, or lose it."""
        number = data.draw(st.integers(0, len(self.under_way) - 1))
        follower, leader, fetch, response = self.under_way.pop(number)
        if data.draw(st.integers(0, 5)) == 0:
            self.fetchers[follower].failed(fetch, self.now_ms)
        elif response is None:
            response = serve([leader], fetch.request, self.now_ms, max_bytes=1)
            self.under_way.insert(number, (follower, leader, fetch, response))
        else:
            self.fetchers[follower].answered(fetch, response, self.now_ms)

    @invariant()
    def what_is_committed_stays(self) -> None:
        in_log = values(self.leader)
        for offset, value in self.committed.items():
            assert in_log.get(offset) == value
        self.committed |= {
            offset: value for offset, value in in_log.items() if offset < self.leader.high_watermark
        }

    def teardown(self) -> None:
        if not hasattr(self, "leader"):
            return
        for follower, _, fetch, _ in self.under_way:
            self.fetchers[follower].failed(fetch, self.now_ms)
        for _ in range(200):
            self.now_ms += 1000
            self.everyone_fetches()
            if all(each.high_watermark == self.leader.log.log_end_offset for each in self.replicas):
                break
        for each in self.replicas:
            assert raw(each) == raw(self.leader)
            assert each.high_watermark == self.leader.log.log_end_offset
        self.what_is_committed_stays()


History.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestHistory = History.TestCase
