"""A hosted shard: records precede claims, claims precede answers, and closing ends all requests."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.coordinator.groups.classic_group import ClassicCaller
from holdfast_log.coordinator.groups.classic_join import Join
from holdfast_log.coordinator.groups.classic_rebalance import Sync
from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment, encode_subscription
from holdfast_log.coordinator.groups.effects import GroupReader, JoinAnswer, ReaderClaim
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard, OffsetToCommit
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.shards.effects import Decision, ProducerStamp, ShardRecord
from holdfast_log.coordinator.shards.hosted_shard import HostedShard, HostState, ShardEvent
from holdfast_log.coordinator.shards.log import NOTHING_COMMITTED, Replay, ReplayOpen
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 0)
COMMIT_TIMEOUT_MS = 5_000


class Watching:
    def __init__(self, log: FakeLog) -> None:
        self._log = log

    def cancel(self) -> None:
        self._log.check = None


class FakeLog:
    """A log whose commits, refusals and reads are controlled by the test."""

    def __init__(self) -> None:
        self.records: list[ShardRecord] = []
        self.leader_epoch = 3
        self.committed_offset = 0
        self.commits_at_once = True
        self.led_until_s: float | None = None
        """Until when it is proven that this broker led; None: at any time."""
        self.error: ErrorCode | None = None
        self.check: Callable[[], bool] | None = None
        self.reading: Deferred[None] = Deferred()
        self.replay: Replay | None = None

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def read_all(self, replay: Replay, replay_open: ReplayOpen) -> Deferred[None]:
        self.replay = replay
        return self.reading

    def append(self, records: Sequence[ShardRecord], timestamp_ms: int, stamp: ProducerStamp | None) -> None:
        if self.error is not None:
            raise BrokerError(self.error)
        self.records += records
        if self.commits_at_once:
            self.commit()

    def is_current_since(self, since_s: float) -> bool:
        return self.led_until_s is None or self.led_until_s >= since_s

    def watch(self, check: Callable[[], bool]) -> Watching:
        assert self.check is None, "one watch at a time"
        self.check = check
        return Watching(self)

    def commit(self) -> None:
        """Commit everything that has been appended."""
        self.committed_offset = self.end_offset
        if self.check is not None:
            self.check()


def caller(joined: JoinAnswer) -> ClassicCaller:
    return ClassicCaller(joined.member_id, joined.generation)


class Host:
    """One hosted shard with its log, clock and claimer."""

    def __init__(self, claimer: Claimer | None = None) -> None:
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.log = FakeLog()
        self.clock_is_wrong_by_s = 0.0
        config = GroupSettings(initial_rebalance_delay_ms=0)
        shard = GroupShard(config, new_id=lambda: "id", partition_count=lambda topic: 1)
        self.hosted = HostedShard(
            "offsets-0",
            shard,
            self.log,
            self.clock,
            lambda: int((self.clock.seconds() + self.clock_is_wrong_by_s) * 1000),
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            repeated_log=RepeatedLog(self.clock),
            claimer=claimer,
        )
        self.hosted.load()

    def set_clock(self, by_s: float) -> None:
        """Set the time of day."""
        self.clock_is_wrong_by_s += by_s

    def loaded(self) -> Host:
        self.log.reading.callback(None)
        return self

    def ask(self, event: ShardEvent) -> list[Any]:
        """The outcome of a request so far: an answer, an error code, or None."""
        done: Deferred[Any] = Deferred()
        outcomes: list[Any] = []
        done.addCallbacks(outcomes.append, lambda failure: outcomes.append(failure.value.code))
        self.hosted.ask(event, done)
        return outcomes

    def commit(self, offset: int = 1, group: str = "g") -> list[Any]:
        offsets = [OffsetToCommit(PARTITION, offset)]
        return self.ask(lambda shard, waiting, now: shard.commit_offsets(waiting, group, offsets, now_ms=now))

    def fetch(self, group: str = "g") -> list[Any]:
        return self.ask(lambda shard, waiting, _: shard.fetch_offsets(waiting, group, [PARTITION]))

    def join(self, group: str = "g") -> list[Any]:
        protocols = (("range", encode_subscription(["t"])),)
        return self.ask(
            lambda shard, waiting, now: shard.classic.join(
                group,
                Join(
                    waiting, "", None, "c", "/h", 10_000, 60_000, "consumer", protocols, asks_member_id=False
                ),
                now,
            )
        )

    def sync(self, joined: JoinAnswer, group: str = "g") -> list[Any]:
        assignments = {joined.member_id: encode_assignment([PARTITION])}
        return self.ask(
            lambda shard, waiting, now: shard.classic.sync(
                group, Sync(waiting, caller(joined), assignments=assignments), now
            )
        )

    def create_group(self, group: str = "g") -> None:
        """A managed group with single readers."""
        (answer,) = self.ask(
            lambda shard, waiting, now: shard.managed.create_group(
                waiting, group, session_timeout_ms=10_000, topics=["t"], single_reader=True, now_ms=now
            )
        )
        assert answer.error is ErrorCode.NONE

    def register(self, consumer_id: str, group: str = "g") -> list[Any]:
        return self.ask(
            lambda shard, waiting, now: shard.managed.register_consumer(
                waiting, group, consumer_id=consumer_id, client_id="c", client_host="/h", now_ms=now
            )
        )

    def become_member(self) -> JoinAnswer:
        outcome = self.join()
        self.clock.advance(0.001)
        (answer,) = outcome
        assert isinstance(answer, JoinAnswer)
        return answer


def test_a_request_is_answered_when_its_records_are_committed() -> None:
    host = Host().loaded()
    host.log.commits_at_once = False
    committed = host.commit()
    assert (len(host.log.records), committed) == (1, [])

    host.log.commit()

    assert [answer.error for answer in committed] == [ErrorCode.NONE]
    assert host.log.check is None, "the watch is cancelled"


def test_answers_are_sent_in_the_order_of_requests() -> None:
    host = Host().loaded()
    host.log.commits_at_once = False
    offsets = [OffsetToCommit(PARTITION, 1)]
    events: dict[str, ShardEvent] = {
        "first": lambda shard, waiting, now: shard.commit_offsets(waiting, "g", offsets, now_ms=now),
        "second": lambda shard, waiting, now: shard.commit_offsets(waiting, "h", offsets, now_ms=now),
        "read": lambda shard, waiting, _: shard.fetch_offsets(waiting, "g", None),
    }
    told: list[str] = []

    def note(_: object, name: str) -> None:
        told.append(name)

    for name, event in events.items():
        done: Deferred[Any] = Deferred()
        host.hosted.ask(event, done.addCallback(note, name))
    host.log.commit()

    assert told == ["first", "second", "read"]


def test_answers_about_loaded_records_wait_until_those_are_committed() -> None:
    """A new leader may have records that are not committed yet."""
    writer = Host().loaded()
    writer.commit(7)
    host = Host()
    assert host.log.replay is not None
    for record in writer.log.records:
        host.log.replay(*record)
    host.log.records = list(writer.log.records)

    fetched = host.loaded().fetch()
    assert fetched == []

    host.log.commit()

    assert fetched[0].offsets[0].offset == 7


def test_a_request_while_the_shard_is_loading_is_refused() -> None:
    host = Host()
    assert host.commit() == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_topic_changes_during_loading_are_handled_afterwards() -> None:
    host = Host()
    writer = Host().loaded()
    writer.commit(7)
    assert host.log.replay is not None
    for record in writer.log.records:
        host.log.replay(*record)
    host.hosted.apply(lambda shard, now: shard.topics_deleted(["t"], now))

    host.loaded()

    assert host.fetch()[0].offsets[0].offset == -1


def test_a_shard_that_cannot_be_read_refuses_requests(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.log.reading.errback(BrokerError(ErrorCode.CORRUPT_MESSAGE, "batch at 17"))
    assert host.hosted.state is HostState.FAILED
    assert host.commit() == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert "batch at 17" in caplog.text


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", HostState.LOADING),
        ("load", HostState.ACTIVE),
        ("fail", HostState.FAILED),
        ("close", HostState.CLOSED),
        ("load close", HostState.CLOSED),
        ("fail close", HostState.CLOSED),
        ("close load", HostState.CLOSED),
        ("close fail", HostState.CLOSED),
        ("close close", HostState.CLOSED),
    ],
)
def test_every_sequence_of_events_leads_to_its_state(events: str, state: HostState) -> None:
    host = Host()
    for event in events.split():
        match event:
            case "load":
                host.loaded()
            case "fail":
                host.log.reading.errback(BrokerError(ErrorCode.CORRUPT_MESSAGE, "batch at 17"))
            case "close":
                host.hosted.close()
    assert host.hosted.state is state


def test_a_malformed_record_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    assert host.log.replay is not None
    host.log.replay(b"\0\1\0\5", b"x")
    writer = Host().loaded()
    writer.commit(7)
    for record in writer.log.records:
        host.log.replay(*record)

    host.loaded()

    assert host.fetch()[0].offsets[0].offset == 7
    assert "Skipping an unreadable record" in caplog.text


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_refused_append_changes_nothing(refusal: ErrorCode, told: ErrorCode) -> None:
    host = Host().loaded()
    host.commit(1)
    host.log.error = refusal
    assert host.commit(2) == [told]

    host.log.error = None

    assert host.fetch()[0].offsets[0].offset == 1


def test_a_group_too_large_for_its_record_is_refused_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    host = Host().loaded()
    joined = host.become_member()
    host.log.error = ErrorCode.MESSAGE_TOO_LARGE
    assert host.sync(joined) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "max.message.bytes" in caplog.text


def test_a_failed_disk_closes_the_shard() -> None:
    host = Host().loaded()
    host.log.error = ErrorCode.KAFKA_STORAGE_ERROR
    assert host.commit(2) == [ErrorCode.NOT_COORDINATOR]
    assert host.hosted.state is HostState.CLOSED
    host.log.error = None
    assert host.fetch() == [ErrorCode.NOT_COORDINATOR]


def test_closing_a_shard_answers_all_waiting_requests() -> None:
    host = Host().loaded()
    host.log.commits_at_once = False
    waiting = [host.commit(), host.join(), host.fetch()]

    host.hosted.close()

    assert waiting == [[ErrorCode.NOT_COORDINATOR]] * 3
    assert host.clock.getDelayedCalls() == []
    assert host.log.check is None


def test_requests_past_their_deadline_are_answered_with_an_error() -> None:
    host = Host().loaded()
    host.log.commits_at_once = False
    first = host.commit(1)
    host.clock.advance(3)
    second = host.commit(2)
    host.clock.advance(2.001)
    assert (first, second) == ([ErrorCode.COORDINATOR_NOT_AVAILABLE], [])

    host.log.commit()

    assert [answer.error for answer in second] == [ErrorCode.NONE]
    assert host.fetch()[0].offsets[0].offset == 2


def test_no_answer_is_sent_while_the_broker_may_have_lost_leadership() -> None:
    host = Host().loaded()
    host.commit(1)
    host.log.committed_offset = NOTHING_COMMITTED
    assert host.fetch() == []


@pytest.mark.parametrize("by_s", [3600, -3600])
def test_setting_the_clock_neither_ends_nor_prolongs_a_session(by_s: float) -> None:
    host = Host().loaded()
    joined = host.become_member()
    host.sync(joined)

    def heartbeat() -> ErrorCode:
        (answer,) = host.ask(
            lambda shard, waiting, now: shard.classic.heartbeat(waiting, "g", caller(joined), now)
        )
        return ErrorCode(answer.error)

    host.set_clock(by_s)
    host.clock.advance(9)
    assert heartbeat() is ErrorCode.NONE
    host.clock.advance(9)
    assert heartbeat() is ErrorCode.NONE
    host.clock.advance(11)
    assert heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


class Claimer:
    """Records claims; the test decides when they are in force."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[ReaderClaim], Decision, Deferred[None]]] = []
        self.is_closed = False

    def claim(self, claims: Sequence[ReaderClaim], decision: Decision) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.asked.append((list(claims), decision, done))
        return done

    def close(self) -> None:
        self.is_closed = True


class TestClaims:
    """Groups with single readers: claims follow the durable assignment and precede its answers."""

    @pytest.fixture
    def claimer(self) -> Claimer:
        return Claimer()

    @pytest.fixture
    def host(self, claimer: Claimer) -> Host:
        host = Host(claimer).loaded()
        host.create_group()
        return host

    def test_an_assignment_is_answered_when_its_claims_are_in_force(
        self, host: Host, claimer: Claimer
    ) -> None:
        host.log.commits_at_once = False
        registered = host.register("c-1")
        assert claimer.asked == [], "not before the assignment is durable"

        host.log.commit()
        ((claims, decision, done),) = claimer.asked
        assert claims == [ReaderClaim("g", GroupReader("c-1", "c", "/h"), 1, PARTITION)]
        assert decision == Decision(host.log.leader_epoch, host.log.end_offset)
        assert registered == [], "not before the claims are in force"

        done.callback(None)
        assert [(answer.error, answer.single_reader) for answer in registered] == [(ErrorCode.NONE, True)]

    def test_other_requests_do_not_wait_for_claims(self, host: Host, claimer: Claimer) -> None:
        registered = host.register("c-1")
        assert [answer.error for answer in host.commit(group="h")] == [ErrorCode.NONE]
        assert registered == []

    def test_each_claims_decision_is_later_than_the_previous_claims(
        self, host: Host, claimer: Claimer
    ) -> None:
        host.register("c-1")
        host.register("c-1")
        (_, first, _), (_, second, _) = claimer.asked
        assert second > first

    def test_claims_are_made_even_after_their_requests_have_timed_out(
        self, host: Host, claimer: Claimer
    ) -> None:
        host.log.commits_at_once = False
        registered = host.register("c-1")
        host.clock.advance(COMMIT_TIMEOUT_MS / 1000 + 0.001)
        assert registered == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

        host.log.commit()

        assert len(claimer.asked) == 1

    def test_a_closed_shard_answers_requests_that_wait_for_claims_with_not_coordinator(
        self, host: Host, claimer: Claimer
    ) -> None:
        registered = host.register("c-1")
        host.hosted.close()
        assert registered == [ErrorCode.NOT_COORDINATOR]
        assert claimer.is_closed
        ((_, _, done),) = claimer.asked
        done.callback(None)
        assert registered == [ErrorCode.NOT_COORDINATOR], "answered once"

    def test_the_next_coordinator_makes_the_claims_again(self, host: Host, claimer: Claimer) -> None:
        host.register("c-1")
        successor = Claimer()
        after = Host(successor)
        assert after.log.replay is not None
        for record in host.log.records:
            after.log.replay(*record)
        after.log.records = list(host.log.records)
        after.log.leader_epoch = host.log.leader_epoch + 1
        after.log.commit()
        after.loaded()
        (before, earlier, _), (again, later, _) = claimer.asked[0], successor.asked[0]
        assert again == before
        assert later > earlier

    def test_without_a_claimer_no_request_waits_for_claims(self) -> None:
        host = Host().loaded()
        host.create_group()
        assert [answer.error for answer in host.register("c-1")] == [ErrorCode.NONE]


def test_a_closed_shard_is_freed_without_the_collector() -> None:
    """Its groups and offsets are many objects, and a broker closes all its shards when it hands them over."""
    host = Host().loaded()
    host.commit()
    host.join()
    freed = weakref.ref(host.hosted)
    gc.disable()
    try:
        host.hosted.close()
        host.log.replay = host.log.check = None  # Only this log keeps them.
        del host.hosted
        assert freed() is None
    finally:
        gc.enable()
