"""The fetch loops: when fetches are sent, and to which leader."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from dataclasses import dataclass, field

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.log.copying import append_as_follower
from holdfast_log.broker.log.flush_job import flush_at_once
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.broker.replication.fetcher import FetchLimits
from holdfast_log.broker.replication.fetchers import Fetchers
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.broker.replication.replica_logs import EVERYONE, NOW_MS, append, elect, raw, replica, serve

FOLLOWER = 2
LIMITS = FetchLimits(backoff_ms=1000)


@dataclass(slots=True)
class Lane:
    """Records the fetches sent through it; the test answers them."""

    sent: list[tuple[int, FetchRequest, Deferred[FetchResponse]]] = field(default_factory=list)

    def send(self, broker_id: int, request: FetchRequest) -> Deferred[FetchResponse]:
        answer: Deferred[FetchResponse] = Deferred()
        self.sent.append((broker_id, request, answer))
        return answer

    def take(self) -> tuple[int, FetchRequest, Deferred[FetchResponse]]:
        """The only fetch sent since the last call."""
        (sent,) = self.sent
        self.sent.clear()
        return sent


@dataclass(slots=True)
class Flushes:
    """Records the logs to be flushed; the test completes the flushes."""

    begun: list[tuple[Log, Deferred[None]]] = field(default_factory=list)

    def flush(self, log: Log) -> Deferred[None]:
        flushed: Deferred[None] = Deferred()
        self.begun.append((log, flushed))
        return flushed

    def end(self) -> None:
        """Complete the only flush under way."""
        ((log, flushed),) = self.begun
        self.begun.clear()
        flush_at_once(log)
        flushed.callback(None)


@dataclass(slots=True)
class Broker:
    """A broker's fetchers, on a clock that the test advances."""

    clock: Clock = field(default_factory=Clock)
    lanes: list[Lane] = field(default_factory=lambda: [Lane()])
    flushes: Flushes = field(default_factory=Flushes)
    fetchers: Fetchers = field(init=False)

    def __post_init__(self) -> None:
        sends = [lane.send for lane in self.lanes]
        self.fetchers = Fetchers(
            FOLLOWER, self.clock, sends, LIMITS, lambda: 5, self.flushes.flush, lambda: NOW_MS
        )

    def pass_turn(self) -> None:
        self.clock.advance(0)


def follower(index: int = 0, leader: int = 1, epoch: int = 0) -> Partition:
    partition = replica(FOLLOWER, index=index)
    partition.follow(LeaderAndIsr(leader, epoch, EVERYONE, epoch, EVERYONE))
    return partition


def indexes(request: FetchRequest) -> list[int]:
    return [wanted.partition for topic in request.topics for wanted in topic.partitions]


def test_partitions_added_in_one_turn_share_one_fetch_per_leader() -> None:
    broker = Broker()
    for index, leader in enumerate((1, 3, 1)):
        broker.fetchers.follow(follower(index, leader))
    assert broker.lanes[0].sent == []
    broker.pass_turn()
    sent = {leader: indexes(request) for leader, request, _ in broker.lanes[0].sent}
    assert sent == {1: [0, 2], 3: [1]}
    assert len(broker.lanes[0].sent) == 2


def test_each_answer_is_followed_by_the_next_fetch() -> None:
    broker, leading, copy = Broker(), replica(1), follower()
    leader = elect(1, 0, [leading])
    broker.fetchers.follow(copy)
    broker.pass_turn()
    for number in range(3):
        append(leader, b"%d" % number)
        _, request, answer = broker.lanes[0].take()
        answer.callback(serve([leader], request))
    assert raw(copy) == raw(leader)


def test_a_fetch_from_an_unreachable_leader_is_repeated_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.fetchers.follow(follower())
    broker.pass_turn()
    with caplog.at_level(logging.INFO):
        for pause_ms in (20, 40, 80):
            _, _, answer = broker.lanes[0].take()
            answer.errback(ChannelLost("it is gone"))
            broker.clock.advance((pause_ms - 1) / 1000)
            assert broker.lanes[0].sent == []
            broker.clock.advance(0.002)
    assert len(broker.lanes[0].sent) == 1
    assert len(caplog.records) == 1  # one log line for all attempts


def test_a_partition_whose_leader_changed_is_fetched_from_the_new_leader_only() -> None:
    broker, copy = Broker(), follower()
    broker.fetchers.follow(copy)
    broker.pass_turn()
    _, request, answer = broker.lanes[0].take()
    copy.follow(LeaderAndIsr(3, 1, EVERYONE, 1, EVERYONE))
    broker.fetchers.follow(copy)
    broker.pass_turn()
    leader, _, _ = broker.lanes[0].take()
    assert leader == 3
    answer.callback(serve([elect(1, 0, [replica(1)])], request))
    broker.clock.advance(10)
    assert broker.lanes[0].sent == []


def test_a_partition_without_a_leader_is_not_fetched() -> None:
    broker = Broker()
    broker.fetchers.follow(follower(leader=-1))
    broker.clock.advance(10)
    assert broker.lanes[0].sent == []
    assert broker.clock.getDelayedCalls() == []


def test_partitions_of_a_leader_are_spread_over_several_connections() -> None:
    broker = Broker(lanes=[Lane(), Lane()])
    for index in range(6):
        broker.fetchers.follow(follower(index))
    broker.pass_turn()
    asked = [indexes(lane.take()[1]) for lane in broker.lanes]
    assert sorted(map(len, asked)) == [3, 3]
    assert sorted(index for lane in asked for index in lane) == list(range(6))


def test_no_fetch_is_sent_after_the_stop() -> None:
    broker = Broker()
    broker.fetchers.follow(follower(0))
    broker.pass_turn()
    _, _, answer = broker.lanes[0].take()
    broker.fetchers.follow(follower(1))
    broker.fetchers.stop()
    answer.errback(ChannelLost("closed"))
    broker.fetchers.follow(follower(2))
    broker.clock.advance(100)
    assert broker.lanes[0].sent == []


def test_a_response_that_raises_an_error_does_not_stop_the_copying(caplog: pytest.LogCaptureFixture) -> None:
    broker, leader = Broker(), elect(1, 0, [replica(1)])
    broken = follower()
    broker.fetchers.follow(broken)
    broker.pass_turn()
    _, request, answer = broker.lanes[0].take()
    response = serve([leader], request)
    response.responses[0].partitions[0].records = object()  # type: ignore[assignment]
    answer.callback(response)
    assert "Could not apply the fetch response" in caplog.text
    broker.clock.advance(1)
    assert indexes(broker.lanes[0].take()[1]) == [0]


def test_a_response_for_another_topic_is_ignored() -> None:
    broker, copy = Broker(), follower()
    broker.fetchers.follow(copy)
    broker.pass_turn()
    leader = elect(1, 0, [replica(1)])
    append(leader, b"x")
    _, request, answer = broker.lanes[0].take()
    response = serve([leader], request)
    response.responses[0].topic_id = uuid.UUID(int=99)
    answer.callback(response)
    assert copy.log.log_end_offset == 0


def durable_follower(index: int = 0) -> Partition:
    """A partition of a topic with `flush.before.ack`."""
    partition = follower(index)
    partition.log.settings = dataclasses.replace(partition.log.settings, flush_before_ack=True)
    return partition


def test_records_not_durable_yet_are_not_reported_to_the_leader() -> None:
    """The leader reads the fetch offset as the follower's log end, and acknowledges up to the lowest."""
    broker, leader, copy = Broker(), elect(1, 0, [replica(1)]), durable_follower()
    append(leader, b"x")
    broker.fetchers.follow(copy)
    broker.pass_turn()
    _, request, answer = broker.lanes[0].take()
    answer.callback(serve([leader], request))
    broker.clock.advance(10)
    assert (copy.log.log_end_offset, broker.lanes[0].sent) == (1, [])
    broker.flushes.end()
    broker.pass_turn()
    _, request, _ = broker.lanes[0].take()
    assert request.topics[0].partitions[0].fetch_offset == 1


def test_partitions_without_flush_before_ack_do_not_wait_for_the_disk() -> None:
    broker, leading = Broker(), [elect(1, 0, [replica(1, index=index)]) for index in range(2)]
    copies = [durable_follower(0), follower(1)]
    append(leading[0], b"x")
    for copy in copies:
        broker.fetchers.follow(copy)
    broker.pass_turn()
    _, request, answer = broker.lanes[0].take()
    answer.callback(serve(leading, request))
    (_, others, _) = broker.lanes[0].take()
    assert indexes(others) == [1]
    broker.flushes.end()
    broker.pass_turn()
    (_, prompt, _) = broker.lanes[0].take()
    assert (indexes(prompt), prompt.max_wait_ms) == ([0], 0)


def test_records_found_at_a_restart_are_flushed_before_the_first_fetch() -> None:
    """The process that wrote them may have been killed before its fsync."""
    broker, copy, leader = Broker(), durable_follower(), elect(1, 0, [replica(1)])
    append(leader, b"x")
    append_as_follower(copy.log, memoryview(bytearray(raw(leader))), now_ms=0)
    broker.fetchers.follow(copy)
    broker.clock.advance(10)
    assert broker.lanes[0].sent == []
    broker.flushes.end()
    broker.pass_turn()
    assert broker.lanes[0].take()[1].topics[0].partitions[0].fetch_offset == 1


def test_a_log_truncated_during_its_flush_is_checked_again() -> None:
    broker, copy, leader = Broker(), durable_follower(), elect(1, 0, [replica(1)])
    append(leader, b"x")
    broker.fetchers.follow(copy)
    broker.pass_turn()
    _, request, answer = broker.lanes[0].take()
    answer.callback(serve([leader], request))
    ((_, flushed),) = broker.flushes.begun
    broker.flushes.begun.clear()
    flushed.errback(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    broker.clock.advance(10)
    assert broker.lanes[0].sent == []
    broker.flushes.end()
    broker.pass_turn()
    assert indexes(broker.lanes[0].take()[1]) == [0]


def test_a_log_that_cannot_be_flushed_is_no_longer_copied() -> None:
    broker, copy, leader = Broker(), durable_follower(), elect(1, 0, [replica(1)])
    append(leader, b"x")
    broker.fetchers.follow(copy)
    broker.pass_turn()
    _, request, answer = broker.lanes[0].take()
    answer.callback(serve([leader], request))
    ((log, flushed),) = broker.flushes.begun
    flushed.errback(log.failed(OSError("the disk is gone")))
    broker.clock.advance(10)
    assert broker.lanes[0].sent == []
    assert broker.clock.getDelayedCalls() == []
