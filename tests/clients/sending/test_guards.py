"""Messages with guards on other partitions (KIP-27), against brokers in memory."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast_log.clients.errors import (
    DeliveryTimeoutError,
    GuardElsewhereError,
    GuardMismatchError,
    TopicRecreatedError,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.conditions import FEATURE
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import ErrorCode, OffsetMismatchError
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle

TERM = TopicPartition("log", 1)
"""The guard partition of most tests; its log ends at offset 2."""
PLAIN = TopicPartition("log", 2)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(brokers=2)
    for partition in cluster.add_topic("log", 4):
        partition.leader = 1
    for broker in cluster.brokers.values():
        broker.features[FEATURE] = 1
    with producer_on(cluster) as producer:
        producer.send(*(Message("log", value="term", partition=TERM.partition) for _ in range(2)))
    cluster.brokers[1].requests.clear()
    return cluster


def producer_on(cluster: FakeCluster, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **properties}
    return Producer(given, network=cluster.network(), rng=random.Random(1), is_threaded=False)


def send_at(
    producer: Producer, offset: int, term: int, value: str = "x", partition: int = 0, *, rest: int = 0
) -> SendResponse:
    """Send a message guarded by the end of the terms' log, and `rest` messages after it."""
    messages = [Message("log", value=value, partition=partition)] * (1 + rest)
    return producer.send_at(offset, *messages, guards={TERM: term})


def values_in(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.topics["log"][partition].records()]


def sent(cluster: FakeCluster) -> list[list[PartitionProduceData]]:
    """The partitions in each request to the first broker."""
    return [
        [data for topic in request.topic_data for data in topic.partition_data]
        for request in cluster.brokers[1].requests
        if isinstance(request, ProduceRequest)
    ]


def test_a_guard_that_holds_lets_the_message_through_and_is_not_written_to(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)

    response = send_at(producer, 0, term=2, rest=2)

    assert settle(producer, 10_000)
    assert response.error is None
    assert values_in(cluster) == [b"x"] * 3 and len(values_in(cluster, 1)) == 2
    ((batch, guard),) = sent(cluster)
    assert (batch.index, batch.expected_offset) == (0, 0)
    assert (guard.index, guard.expected_offset, guard.records) == (1, 2, None)


def test_a_guard_that_does_not_hold_refuses_the_message_and_says_where_its_log_ends(
    cluster: FakeCluster,
) -> None:
    producer = producer_on(cluster)

    response = send_at(producer, 0, term=1)

    assert settle(producer, 10_000)
    error = response.error
    assert isinstance(error, GuardMismatchError) and not isinstance(error, OffsetMismatchError)
    assert error.next_offsets == {TERM: 2} and "log-1" in str(error)
    assert values_in(cluster) == []
    again = send_at(producer, 0, term=2, value="y")
    assert settle(producer, 10_000)
    assert again.error is None and values_in(cluster) == [b"y"]


def test_the_guards_of_one_send_at_cover_all_its_messages_however_large_they_are(
    cluster: FakeCluster,
) -> None:
    producer = producer_on(cluster)
    messages = [Message("log", value="x" * 50_000, partition=0)] * 6

    moved = producer.send_at(0, *messages, guards={TERM: 1})
    assert settle(producer, 10_000)
    assert isinstance(moved.error, GuardMismatchError) and values_in(cluster) == []
    held = producer.send_at(0, *messages, guards={TERM: 2})
    assert settle(producer, 10_000)

    assert held.error is None and len(values_in(cluster)) == 6
    assert [[data.index for data in request] for request in sent(cluster)] == [[0, 1], [0, 1]]


def test_a_guard_that_moves_while_a_large_send_at_is_under_way_refuses_all_of_it(
    cluster: FakeCluster,
) -> None:
    producer, other = producer_on(cluster), producer_on(cluster)
    messages = [Message("log", value="x" * 50_000, partition=0)] * 6
    late = producer.send_at(0, *messages, guards={TERM: 2})
    other.send(Message("log", value="next term", partition=TERM.partition))
    assert settle(other, 10_000) and settle(producer, 10_000)

    assert isinstance(late.error, GuardMismatchError)
    assert values_in(cluster) == []


def test_a_guard_in_a_topic_that_was_created_again_refuses_the_message(cluster: FakeCluster) -> None:
    """The new log of the terms may end at the expected offset by chance."""
    (terms,) = cluster.add_topic("terms")
    terms.leader, term = 1, TopicPartition("terms", 0)
    producer = producer_on(cluster)
    producer.send_at(0, Message("log", value="x", partition=0), guards={term: 0})
    assert settle(producer, 10_000)
    cluster.add_topic("terms")[0].leader = 1

    late = producer.send_at(1, Message("log", value="late", partition=0), guards={term: 0})
    assert settle(producer, 10_000)

    assert isinstance(late.error, TopicRecreatedError) and "terms" in str(late.error)
    assert values_in(cluster) == [b"x"]


def test_a_guard_mismatch_names_the_guards_that_failed(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    guards = {TERM: 2, PLAIN: 7, TopicPartition("log", 3): 8}
    response = producer.send_at(0, Message("log", partition=0), guards=guards)
    assert settle(producer, 10_000)
    assert isinstance(response.error, GuardMismatchError)
    assert response.error.next_offsets == {PLAIN: 0, TopicPartition("log", 3): 0}


def test_a_mismatch_of_the_message_itself_outweighs_its_guards(
    cluster: FakeCluster,
) -> None:
    producer = producer_on(cluster)
    response = send_at(producer, 5, term=1)
    assert settle(producer, 10_000)
    assert isinstance(response.error, OffsetMismatchError) and response.error.next_offset == 0


def test_messages_after_one_that_a_guard_refused_fail_with_it(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, **{"batch.size": 1})
    guarded = send_at(producer, 0, term=9)
    behind = [producer.send(Message("log", value="b", partition=0, offset=offset)) for offset in (0, 1)]
    assert settle(producer, 10_000)
    assert [type(each.error) for each in (guarded, *behind)] == [GuardMismatchError] * 3
    assert values_in(cluster) == []


def test_a_failed_guard_leaves_other_partitions_alone(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, retries=1)
    refused = send_at(producer, 0, term=9)
    plain = producer.send(Message("log", value="p", partition=2))
    to_guard = producer.send(Message("log", value="t", partition=TERM.partition))
    assert settle(producer, 10_000)
    assert isinstance(refused.error, GuardMismatchError)
    assert (plain.offset, to_guard.offset) == (0, 2)


def test_a_request_names_each_partition_once_guards_included(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    responses = [
        send_at(producer, 0, term=2),
        send_at(producer, 0, term=2, partition=2),
        producer.send(Message("log", value="t", partition=TERM.partition)),
        producer.send_at(0, Message("log", partition=3), guards={TopicPartition("log", 0): 1}),
    ]
    assert settle(producer, 10_000)
    for request in sent(cluster):
        indexes = [data.index for data in request]
        assert len(indexes) == len(set(indexes))
    assert [each.error for each in responses] == [None] * 4


def test_messages_are_sent_again_while_the_leader_of_a_guard_moves(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    producer.send(Message("log", value="known", partition=2))
    assert settle(producer, 10_000)
    for partition in cluster.topics["log"]:
        partition.leader, partition.leader_epoch = 2, 1

    response = send_at(producer, 0, term=2)

    assert settle(producer, 60_000)
    assert response.error is None and values_in(cluster) == [b"x"]


def test_a_guard_with_another_leader_fails_its_message_and_those_after_it(cluster: FakeCluster) -> None:
    cluster.topics["log"][TERM.partition].leader = 2
    producer = producer_on(cluster, **{"batch.size": 1})

    responses = [send_at(producer, 0, term=2), producer.send(Message("log", partition=0, offset=1))]

    assert settle(producer, 60_000)
    assert [type(each.error) for each in responses] == [GuardElsewhereError] * 2
    assert "same leader" in str(responses[0].error)
    assert sent(cluster) == []


def test_a_guard_that_moved_away_fails_only_messages_that_are_not_written(cluster: FakeCluster) -> None:
    """ "A producer can re-send a message indefinitely and be sure that at most one of those attempts will
    succeed" (KIP-27): a retry of a written message whose answer was lost gets its offset."""
    producer = producer_on(cluster)

    def move() -> None:
        cluster.topics["log"][TERM.partition].leader = 2

    cluster.at(cluster.now_ms() + 50, move)
    cluster.brokers[1].fail_next(ProduceRequest, "cut after")
    written = send_at(producer, 0, term=2)
    assert settle(producer, 60_000)
    assert (written.error, written.offset) == (None, 0)

    cluster.topics["log"][TERM.partition].leader = 1
    cluster.at(cluster.now_ms() + 50, move)
    cluster.brokers[1].fail_next(ProduceRequest, "cut")
    unwritten = send_at(producer, 1, term=2)
    assert settle(producer, 60_000)
    assert isinstance(unwritten.error, GuardElsewhereError)
    assert values_in(cluster) == [b"x"]


@pytest.mark.parametrize("how", ["cut", "cut after", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_retry_answers_the_original_offset_even_if_the_guard_no_longer_holds(
    cluster: FakeCluster, how: str | ErrorCode
) -> None:
    producer = producer_on(cluster, **{"batch.size": 1})
    cluster.brokers[1].fail_next(ProduceRequest, how)
    responses = [send_at(producer, offset, term=2, value=str(offset)) for offset in range(3)]
    assert settle(producer, 60_000)
    assert [each.offset for each in responses] == [0, 1, 2]
    assert values_in(cluster) == [b"0", b"1", b"2"]


def test_a_guard_sent_after_a_refused_message_of_its_partition_is_judged_again(
    cluster: FakeCluster,
) -> None:
    """A broker refuses every later part of a refused attempt, even with a guard that holds, so the producer
    retries."""
    producer = producer_on(cluster)
    wrong = producer.send(Message("log", value="w", partition=TERM.partition, offset=9))
    guarded = send_at(producer, 0, term=2)
    assert settle(producer, 60_000)
    assert isinstance(wrong.error, OffsetMismatchError)
    assert guarded.offset == 0


def test_a_message_waits_while_its_guard_has_no_leader(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, **{"delivery.timeout.ms": 40_000})
    response = producer.send_at(0, Message("log", partition=0), guards={TopicPartition("log", 9): 0})
    assert settle(producer, 60_000)
    assert isinstance(response.error, DeliveryTimeoutError)
    assert "the leader of log-9, a guard, is unknown" in str(response.error)


def test_an_invalid_guard_raises_at_once(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    message = Message("log", partition=0)
    with pytest.raises(ValueError, match="log-0 is written to"):
        producer.send_at(0, message, guards={TopicPartition("log", 0): 0})
    with pytest.raises(ValueError, match=r"guards must be a dict whose values .* not int -1"):
        producer.send_at(0, message, guards={TERM: -1})
