"""The counters and events of a connection, against brokers in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.link import Call
from holdfast_log.clients.errors import ClientError, ConnectionFailedError, RequestTimeoutError
from holdfast_log.clients.feedback.events import (
    ConnectionFailed,
    ConnectionLost,
    ConnectionOpened,
    Event,
    Events,
    LeaderMoved,
)
from holdfast_log.protocol.messages.describe_cluster import DescribeClusterRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.wire import Buffer
from holdfast_log.testing.fakes.fake_broker import FakeChannel
from holdfast_log.testing.fakes.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.add_topic("flights", 2)
    return cluster


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def connection(cluster: FakeCluster, told: list[Event]) -> Iterator[Connection]:
    with Connection(
        "broker-1:9092", network=cluster, rng=random.Random(1), on_event=told.append
    ) as connection:
        yield connection


def question() -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=False)


def settle(connection: Connection, node: int) -> None:
    """Advance the clock until a broker has answered once more."""
    for _ in range(50):
        try:
            connection.ask(node, question(), 2000)
        except ClientError:
            connection.poll(100)
        else:
            return
    raise AssertionError(f"no answer from broker {node}")


def test_requests_are_counted_by_api_and_by_broker(connection: Connection) -> None:
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(connection, 2)
    settle(connection, 2)

    seen = connection.feedback()

    described = seen.apis["DescribeCluster"]
    assert (described.requests, described.responses, described.failures) == (2, 2, 0)
    assert described.latency.count == 2
    brokers = {broker.node: broker for broker in seen.brokers}
    assert list(brokers) == [1, 2] and brokers[2].address == "broker-2:9092"
    assert (brokers[2].requests, brokers[2].responses) == (2, 2)
    assert seen.total.requests == sum(broker.requests for broker in seen.brokers)
    assert seen.total.responses == sum(api.responses for api in seen.apis.values())
    assert seen.bytes_out == sum(broker.bytes_out for broker in seen.brokers) > 0
    assert seen.bytes_in > seen.bytes_out, "answers are longer than these questions"


def test_every_byte_is_counted_both_ways(
    cluster: FakeCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = {"out": 0, "in": 0}
    send, receive_into = FakeChannel.send, FakeChannel.receive_into

    def counted_send(channel: FakeChannel, buffers: Sequence[Buffer]) -> int:
        count = send(channel, buffers)
        passed["out"] += count
        return count

    def counted_receive(channel: FakeChannel, buffer: memoryview) -> int | None:
        count = receive_into(channel, buffer)
        passed["in"] += count or 0
        return count

    monkeypatch.setattr(FakeChannel, "send", counted_send)
    monkeypatch.setattr(FakeChannel, "receive_into", counted_receive)
    cluster.brokers[1].send_bytes = cluster.brokers[2].receive_bytes = 7
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(connection, 2)

    seen = connection.feedback()

    assert (seen.bytes_out, seen.bytes_in) == (passed["out"], passed["in"])
    assert passed["out"] > 7 and passed["in"] > 7


def test_latency_is_the_time_to_the_response(cluster: FakeCluster, connection: Connection) -> None:
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(connection, 2)
    cluster.brokers[2].is_silent = True
    connection.poll(0, Call(2, question()))
    cluster.at(cluster.time_ms + 90, cluster.brokers[2].start)
    for _ in range(5):
        connection.poll(50)

    latency = connection.feedback().apis["DescribeCluster"].latency

    assert (latency.count, latency.max_ms, latency.mean_ms) == (2, 90, 45.0)


def test_a_broken_connection_and_the_next_one_are_reported(
    cluster: FakeCluster, connection: Connection, told: list[Event]
) -> None:
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(connection, 2)
    assert ConnectionOpened(2, "broker-2:9092") in told

    told.clear()
    cluster.brokers[2].fail_next(DescribeClusterRequest, "cut")
    settle(connection, 2)

    lost, opened = [event for event in told if not isinstance(event, LeaderMoved)]
    assert isinstance(lost, ConnectionLost) and (lost.node, lost.address) == (2, "broker-2:9092")
    assert isinstance(lost.error, ConnectionFailedError) and "connection lost" in str(lost.error)
    assert opened == ConnectionOpened(2, "broker-2:9092")
    (broker,) = [broker for broker in connection.feedback().brokers if broker.node == 2]
    assert (broker.opened, broker.lost, broker.failed, broker.closed) == (2, 1, 0, 0)
    assert broker.failures == 1


def test_each_failed_attempt_to_connect_is_reported_once(
    cluster: FakeCluster, connection: Connection, told: list[Event]
) -> None:
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[2].stop()
    told.clear()
    for _ in range(3):
        connection.poll(5000, Call(2, question(), timeout_ms=1000))

    failed = [event for event in told if isinstance(event, ConnectionFailed)]
    assert failed and all((event.node, event.address) == (2, "broker-2:9092") for event in failed)
    assert connection.feedback().connections_failed == len(failed)
    assert connection.feedback().connections_lost == 0


def test_a_response_that_takes_too_long_ends_the_connection(
    cluster: FakeCluster, connection: Connection, told: list[Event]
) -> None:
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(connection, 2)
    cluster.brokers[2].is_silent = True
    with pytest.raises(RequestTimeoutError):
        connection.ask(2, question(), 300)

    (lost,) = [event for event in told if isinstance(event, ConnectionLost)]
    assert isinstance(lost.error, RequestTimeoutError)
    assert connection.feedback().apis["DescribeCluster"].failures == 1


def test_connections_that_the_client_closes_do_not_count_as_lost(
    cluster: FakeCluster, told: list[Event]
) -> None:
    properties = {"connections.max.idle.ms": 1000}
    connection = Connection(cluster.bootstrap, properties, network=cluster, on_event=told.append)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(connection, 2)
    for _ in range(10):
        connection.poll(500)
    idle = connection.feedback()
    connection.close()

    assert idle.connections_closed == idle.connections_opened > 0
    assert connection.feedback() == idle
    assert not [event for event in told if isinstance(event, ConnectionLost | ConnectionFailed)]


def test_a_change_of_leader_is_reported(
    cluster: FakeCluster, connection: Connection, told: list[Event]
) -> None:
    connection.metadata.want("flights")
    settle_any(connection)
    partition = cluster.topics["flights"][0]
    assert partition.leader == 1
    partition.leader, partition.leader_epoch = 2, 5
    connection.metadata.renew()
    settle_any(connection)
    settle_any(connection)

    moves = [event for event in told if isinstance(event, LeaderMoved)]
    assert moves == [LeaderMoved("flights", 0, leader=2, leader_epoch=5, leader_before=1)]


def settle_any(connection: Connection) -> None:
    connection.ask(ANY_NODE, question())
    connection.poll(200)


def test_a_callback_that_raises_stops_nothing(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def on_event(event: Event) -> None:
        calls.append(event)
        raise LookupError("the application's own fault")

    with Connection(cluster.bootstrap, network=cluster, on_event=on_event) as connection:
        connection.ask(ANY_NODE, MetadataRequest(topics=None))
        settle(connection, 1)
        settle(connection, 2)

    assert len(calls) == 2
    assert capsys.readouterr().err.count("LookupError: the application's own fault") == 2


def test_a_callback_sees_what_has_been_counted_with_its_event(cluster: FakeCluster) -> None:
    seen = []

    def on_event(event: Event) -> None:
        seen.append(client.feedback().connections_opened)

    client = Connection(cluster.bootstrap, network=cluster, on_event=on_event)
    client.ask(ANY_NODE, MetadataRequest(topics=None))
    settle(client, 1)
    settle(client, 2)
    client.close()

    assert seen == [1, 2]


def test_an_event_noted_during_delivery_is_delivered_next() -> None:
    told = []

    def on_event(event: Event) -> None:
        told.append(f"begin {event}")
        if event == ConnectionOpened(1, "a:1"):
            events.note(ConnectionOpened(2, "b:2"))
            events.tell()
        told.append(f"end {event}")

    events = Events(on_event)
    events.note(ConnectionOpened(1, "a:1"))
    events.tell()

    assert [line.split()[0] for line in told] == ["begin", "end", "begin", "end"]
