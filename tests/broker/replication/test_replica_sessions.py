"""A follower's fetcher and its leader's handlers use fetch sessions: named partitions, and no lost change."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.fetcher import Asked, FetchLimits, ReplicaFetcher
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.replication.throttle import follower_throttle
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.fetch import FetchResponse
from tests.broker.replication.replica_logs import raw, replica
from tests.broker.world import World, only_produced, produce_request
from tests.models.batches import batch

LEADER, FOLLOWER = 1, 2
BOTH = (LEADER, FOLLOWER)
WAIT_MS = 500


class Pair:
    """Broker 1 leads partitions of `t`; a fetcher copies them to logs of broker 2."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.world = World(directory)
        self.fetcher = ReplicaFetcher(
            FOLLOWER, FetchLimits(WAIT_MS), lambda: 7, follower_throttle(FOLLOWER), self.world.now_ms
        )
        self.epochs = [0] * partitions
        self.copies: list[Partition] = []
        for index in range(partitions):
            self.world.assign("t", index, replicas=BOTH)
            self.copies.append(replica(FOLLOWER, "t", index, self.world.topic_id("t")))
            self.follow(index)
        self.client = self.world.client()
        self.under_way: list[Asked] = []

    def follow(self, index: int) -> None:
        epoch = self.epochs[index]
        self.copies[index].follow(LeaderAndIsr(LEADER, epoch, BOTH, epoch, BOTH))
        self.fetcher.follow(self.copies[index], self.world.now_ms())

    def elect(self, index: int) -> None:
        """Make broker 1 the leader again, in the next leader epoch."""
        self.epochs[index] += 1
        epoch = self.epochs[index]
        self.world.assign("t", index, replicas=BOTH, leader_epoch=epoch, partition_epoch=epoch)

    def append(self, index: int) -> None:
        produced = only_produced(
            self.world.client().call(produce_request("t", batch(b"x" * 100), index, acks=1))
        )
        assert produced.error_code == ErrorCode.NONE

    def send(self) -> list[Asked]:
        """Send the fetches that are due."""
        sent = []
        while (fetch := self.fetcher.next_fetch(self.world.now_ms())) is not None:
            sent.append(fetch)
            self.under_way.append(fetch)
            self.client.ask(fetch.request)
        return sent

    def receive(self) -> list[FetchResponse]:
        """Give the answers received so far to the fetcher."""
        answers: list[FetchResponse] = self.client.answers()
        for response in answers:
            self.fetcher.answered(self.under_way.pop(0), response, self.world.now_ms())
        return answers

    def turn(self) -> tuple[Asked, FetchResponse]:
        """Send one fetch, and receive its answer within WAIT_MS."""
        (fetch,) = self.send()
        answers = self.receive()
        if not answers:
            self.world.clock.advance(WAIT_MS / 1000)
            answers = self.receive()
        (response,) = answers
        return fetch, response

    def reconnect(self) -> None:
        """Lose the connection with all fetches under way, and open another."""
        self.client.connection.connection_lost("cut")
        self.client = self.world.client()
        for fetch in self.under_way:
            self.fetcher.failed(fetch, self.world.now_ms())
        self.under_way.clear()

    def settle(self) -> None:
        for _ in range(60):
            self.send()
            self.world.clock.advance(WAIT_MS / 1000)
            self.receive()


def named(fetch: Asked) -> list[int]:
    return [wanted.partition for topic in fetch.request.topics for wanted in topic.partitions]


def told(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def test_a_fetch_names_only_advanced_partitions_and_its_answer_only_changed_ones(tmp_path: Path) -> None:
    pair = Pair(tmp_path, partitions=50)
    fetch, response = pair.turn()
    assert (len(named(fetch)), len(told(response))) == (50, 50)
    fetch, response = pair.turn()
    assert (named(fetch), told(response)) == ([], [])
    pair.append(3)
    fetch, response = pair.turn()
    assert (named(fetch), told(response)) == ([], [3])
    fetch, response = pair.turn()
    assert named(fetch) == [3]
    fetch, response = pair.turn()
    assert (named(fetch), told(response)) == ([], [])
    assert pair.copies[3].high_watermark == 1


def test_a_fetch_has_what_is_written_elsewhere_because_of_the_position_that_it_brings(
    tmp_path: Path,
) -> None:
    """As the markers of a transaction, once its end is on all replicas of the coordinator's partition."""
    pair = Pair(tmp_path, partitions=3)
    pair.turn()
    pair.turn()
    pair.append(0)
    written: list[int] = []

    def write(index: int) -> bool:
        pair.append(index)
        written.append(index)
        return True

    writers, partition = pair.world.replicas.writers, pair.world.replicas.partition
    writers.park([partition("t", 0).key], 60_000, lambda key: write(1), lambda: None)
    fetch, response = pair.turn()
    assert told(response) == [0]
    (fetch,) = pair.send()
    assert (named(fetch), written) == ([0], [1])
    answers = pair.receive()  # At once, not at the end of its wait.
    assert [told(response) for response in answers] == [[0, 1]]


def test_a_fetch_adds_new_partitions_to_the_session_and_removes_dropped_ones(tmp_path: Path) -> None:
    pair = Pair(tmp_path, partitions=3)
    pair.fetcher.forget(pair.copies[2])
    pair.turn()
    pair.follow(2)
    pair.fetcher.forget(pair.copies[0])
    fetch, response = pair.turn()
    assert (named(fetch), told(response)) == ([2], [2])
    ((_, partitions),) = [(each.topic, each.partitions) for each in fetch.request.forgotten_topics_data]
    assert partitions == [0]
    pair.append(0)
    assert told(pair.turn()[1]) == []


def test_a_new_partition_is_fetched_at_once_while_another_fetch_waits(tmp_path: Path) -> None:
    pair = Pair(tmp_path, partitions=3)
    pair.fetcher.forget(pair.copies[2])
    pair.turn()
    pair.send()
    pair.follow(2)
    pair.append(2)
    assert [named(fetch) for fetch in pair.send()] == [[2]]
    assert len(pair.receive()) == 2
    assert raw(pair.copies[2])
    (fetch,) = pair.send()
    assert named(fetch) == [2]


def test_a_fetch_names_all_partitions_after_the_leader_has_lost_the_session(tmp_path: Path) -> None:
    pair = Pair(tmp_path, partitions=3)
    pair.turn()
    pair.world.replicas.sessions.close_all_of(pair.client.connection.id)
    _, response = pair.turn()
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    fetch, response = pair.turn()
    assert (len(named(fetch)), len(told(response))) == (3, 3)
    assert named(pair.turn()[0]) == []


def test_a_fetch_names_all_partitions_after_a_lost_connection(tmp_path: Path) -> None:
    pair = Pair(tmp_path, partitions=3)
    pair.turn()
    pair.send()
    pair.reconnect()
    pair.world.clock.advance(1)
    fetch, _ = pair.turn()
    assert len(named(fetch)) == 3


def test_without_a_session_every_fetch_names_all_partitions(tmp_path: Path) -> None:
    pair = Pair(tmp_path, partitions=3)
    pair.world.replicas.sessions._limits = type(pair.world.replicas.sessions._limits)(sessions_max=0)
    for _ in range(3):
        fetch, response = pair.turn()
        assert (len(named(fetch)), len(told(response))) == (3, 3)


def test_a_deletion_waits_for_the_checkpoint_of_the_follower_and_for_nothing_else(tmp_path: Path) -> None:
    """The follower hears of it although its fetch waits for records, and tells at once that its start is
    durable; until then both wait."""
    pair = Pair(tmp_path, partitions=2)
    pair.append(0)
    pair.turn()
    pair.turn()
    log, moved = pair.copies[0].log, list[Log]()
    log.events = replace(log.events, start_moved=moved.append)
    pair.send()
    admin = pair.world.client()
    wanted = DeleteRecordsPartition(partition_index=0, offset=1)
    admin.ask(
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=5000)
    )
    assert [told(response) for response in pair.receive()] == [[0]]
    assert (log.log_start_offset, moved) == (1, [log])

    assert [named(fetch) for fetch in pair.send()] == [[]]
    assert pair.receive() == []
    pair.world.clock.advance(WAIT_MS / 1000)
    assert [told(response) for response in pair.receive()] == [[]]
    pair.send()
    assert (admin.answers(), moved) == ([], [log])

    log.durable_start_offset = 1
    pair.fetcher.start_durable(log)
    assert [named(fetch) for fetch in pair.send()] == [[0]]
    (answer,) = admin.answers()
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("seed", range(12))
def test_after_random_events_all_replicas_are_equal(tmp_path: Path, seed: int) -> None:
    """Logs, log starts and high watermarks are equal once events stop."""
    chance = random.Random(seed)
    pair = Pair(tmp_path, partitions=5)

    def index() -> int:
        return chance.randrange(5)

    def delete_records() -> None:
        at = index()
        end = pair.world.replicas.partition("t", at).high_watermark
        deletions = pair.world.deletions
        deletions.tell_readers([deletions.begin("t", at, chance.randint(0, end))])

    def change_epoch() -> None:
        at = index()
        pair.elect(at)
        if chance.random() < 0.7:
            pair.follow(at)

    def lose_session() -> None:
        pair.world.replicas.sessions.close_all_of(pair.client.connection.id)

    actions = (
        lambda: pair.append(index()),
        lambda: pair.append(index()),
        lambda: pair.append(index()),
        pair.send,
        pair.send,
        pair.receive,
        pair.receive,
        lambda: pair.world.clock.advance(chance.choice([0.02, 0.6])),
        delete_records,
        change_epoch,
        lambda: pair.follow(index()),
        lambda: pair.fetcher.forget(pair.copies[index()]),
        lose_session,
        pair.reconnect,
    )
    weights = (6, 6, 6, 8, 8, 8, 8, 8, 2, 2, 2, 1, 1, 1)
    for _ in range(300):
        chance.choices(actions, weights)[0]()
    for at in range(5):
        pair.follow(at)
    pair.settle()
    for at, copy in enumerate(pair.copies):
        leader = pair.world.replicas.partition("t", at)
        assert copy.log.log_end_offset == leader.log.log_end_offset
        assert copy.log.log_start_offset == leader.log.log_start_offset
        assert copy.high_watermark == leader.high_watermark == leader.log.log_end_offset
        assert raw(copy) == raw(leader)
    assert named(pair.send()[0]) == []
