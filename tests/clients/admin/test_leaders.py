"""Questions to the leaders of partitions while leaders move."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from holdfast_log.clients.admin.asking import Asking
from holdfast_log.clients.admin.leaders import ask_leaders
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

TIMEOUT_MS = 10_000
WANTED = [TopicPartition("t", index) for index in range(3)]
Row = tuple[TopicPartition, int, str | None, str]


class Leaders:
    """A cluster whose brokers answer with `errors` first: one list of codes for each partition."""

    def __init__(self, errors: dict[int, list[ErrorCode]]) -> None:
        self.cluster = FakeCluster()
        self.cluster.add_topic("t", 3)
        connection = Connection(self.cluster.bootstrap, network=self.cluster, rng=random.Random(1))
        self.asking = Asking(connection, TIMEOUT_MS, backoff_ms=100)
        self.errors = errors
        self.asked: list[list[int]] = []

    def ask(self, node: int, led: Sequence[TopicPartition]) -> Iterator[Row]:
        self.asked.append([at.partition for at in led])
        for at in led:
            codes = self.errors.get(at.partition, [])
            code = codes.pop(0) if codes else ErrorCode.NONE
            yield at, code, None, f"answer {at.partition}"


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE])
def test_partitions_whose_leader_has_moved_are_asked_for_again(error: ErrorCode) -> None:
    leaders = Leaders({1: [error, error]})
    found = ask_leaders(leaders.asking, WANTED, leaders.ask)
    assert found == {at: f"answer {at.partition}" for at in WANTED}
    assert sum(asked.count(0) for asked in leaders.asked) == 1
    assert leaders.asked[-2:] == [[1], [1]]
    assert leaders.asking.retries == 2


def test_another_error_is_raised_at_once() -> None:
    leaders = Leaders({0: [ErrorCode.POLICY_VIOLATION]})
    with pytest.raises(BrokerError, match="t-0") as raised:
        ask_leaders(leaders.asking, WANTED, leaders.ask)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_a_partition_that_stays_without_its_leader_is_told_after_the_timeout() -> None:
    leaders = Leaders({2: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000})
    before_ms = leaders.cluster.now_ms()
    with pytest.raises(BrokerError, match="t-2") as raised:
        ask_leaders(leaders.asking, WANTED, leaders.ask)
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leaders.cluster.now_ms() - before_ms >= TIMEOUT_MS
