"""The low-level connection against brokers in memory: addressing, pipelining, timeouts, invalid responses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.connection.backoff import Backoff
from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.connection.connection import ANY_NODE, CONTROLLER, COORDINATOR, Connection
from holdfast_log.clients.connection.conversation import FrameReader
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import (
    ClosedError,
    ConnectionFailedError,
    NoBrokerError,
    RequestTimeoutError,
    UnsupportedRequestError,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.describe_cluster import DescribeClusterRequest
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.testing.fakes.fake_cluster import FakeCluster


def connection_to(cluster: FakeCluster, properties: dict[str, Any] | None = None) -> Connection:
    return Connection(cluster.bootstrap, properties, network=cluster, rng=random.Random(1))


def ask_for(topic: str, node: int = ANY_NODE, **more: Any) -> Call:
    return Call(node, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), tag=topic, **more)


def collect(connection: Connection, count: int, *calls: Call) -> list[Reply]:
    replies = connection.poll(0, *calls)
    for _ in range(200):
        if len(replies) >= count:
            return replies
        replies += connection.poll(1000)
    raise AssertionError(f"{len(replies)} replies of {count}")


def test_ask_waits_for_the_response() -> None:
    cluster = FakeCluster(3)
    cluster.add_topic("flights", 2)
    with connection_to(cluster) as connection:
        response = connection.ask(ANY_NODE, MetadataRequest(topics=None))
        assert [topic.name for topic in response.topics] == ["flights"]
        assert connection.ask(2, MetadataRequest(topics=None)).controller_id == 1
        assert connection.ask(CONTROLLER, MetadataRequest(topics=None)).controller_id == 1
        assert connection.metadata.cluster_id == "fake"


def test_many_calls_are_in_flight_and_each_reply_names_its_call() -> None:
    cluster = FakeCluster(3)
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    calls = [ask_for(f"topic-{n}", node=n % 3 + 1) for n in range(60)]
    replies = collect(connection, 60, *calls)

    for reply in replies:
        assert reply.response is not None and reply.response.topics[0].name == reply.call.tag
    for node in (1, 2, 3):
        tags = [reply.call.tag for reply in replies if reply.call.node == node]
        assert tags == [call.tag for call in calls if call.node == node]


def test_a_second_connection_is_not_held_up_by_calls_on_the_first() -> None:
    cluster = FakeCluster(2)
    with connection_to(cluster) as connection:
        connection.ask(ANY_NODE, MetadataRequest(topics=None))
        connection.open_line("broker-1", 9092)
        waits = Call(1, FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[], forgotten_topics_data=[]))
        replies = collect(
            connection, 1, waits, ask_for("behind", node=1), ask_for("beside", node=COORDINATOR)
        )
        assert [reply.call.tag for reply in replies] == ["beside"]

        connection.open_line("broker-2", 9092)
        collect(connection, 1, ask_for("elsewhere", node=COORDINATOR))
        assert [type(request) for request in cluster.brokers[2].requests][-1] is MetadataRequest


def test_calls_on_a_second_connection_that_moves_fail() -> None:
    cluster = FakeCluster(2)
    cluster.brokers[1].is_silent = True
    with connection_to(cluster) as connection:
        connection.open_line("broker-1", 9092)
        connection.poll(0, ask_for("flights", node=COORDINATOR))
        connection.open_line("broker-2", 9092)
        (reply,) = collect(connection, 1)
        assert isinstance(reply.error, ConnectionFailedError)
        assert "moved" in str(reply.error)


def test_a_call_on_a_second_connection_that_was_not_opened_fails() -> None:
    with connection_to(FakeCluster()) as connection:
        (reply,) = collect(connection, 1, ask_for("flights", node=COORDINATOR))
        assert isinstance(reply.error, NoBrokerError)


def test_replies_to_other_calls_are_kept_while_one_is_asked_for() -> None:
    connection = connection_to(FakeCluster())
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    early = connection.poll(0, ask_for("flights", node=1))
    connection.ask(1, MetadataRequest(topics=None))

    assert [reply.call.tag for reply in early + connection.poll(0)] == ["flights"]


def test_a_reply_that_comes_with_the_end_of_a_connection_is_returned() -> None:
    """The response arrives in the same turn in which an earlier asked broker's connection ends."""
    cluster = FakeCluster(2)
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[2].is_silent = True
    assert connection.poll(0, ask_for("flights", node=2)) == []
    del cluster.brokers[2]
    connection.metadata.renew()
    cluster.time_ms += 1_000
    connection.ask(1, MetadataRequest(topics=None))

    (reply,) = connection.poll(0)
    assert reply.call.tag == "flights"
    assert "no longer broker 2" in str(reply.error)


def test_one_bootstrap_server_that_answers_is_enough() -> None:
    cluster = FakeCluster(3)
    cluster.brokers[1].stop()
    cluster.brokers[2].stop()
    assert connection_to(cluster).ask(ANY_NODE, MetadataRequest(topics=None)).cluster_id == "fake"


def test_if_no_bootstrap_server_answers_the_error_names_each() -> None:
    cluster = FakeCluster(2)
    for broker in cluster.brokers.values():
        broker.stop()
    with pytest.raises(NoBrokerError, match=r"broker-1:9092: .*refused.*broker-2:9092: .*refused"):
        connection_to(cluster).ask(ANY_NODE, MetadataRequest(topics=None), 5000)
    assert cluster.time_ms == 5000


def test_the_bootstrap_servers_help_again_when_all_known_brokers_are_gone() -> None:
    cluster = FakeCluster(3)
    cluster.brokers[3].stop()
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[3].start()
    cluster.brokers[1].stop()
    cluster.brokers[2].stop()

    connection.poll(100)
    for _ in range(50):
        connection.poll(1000)
        if list(connection.metadata.nodes) == [3]:
            break
    assert list(connection.metadata.nodes) == [3]


def lookups(cluster: FakeCluster) -> list[int]:
    """How many Metadata requests each broker got."""
    return [
        sum(isinstance(request, MetadataRequest) for request in broker.requests)
        for broker in cluster.brokers.values()
    ]


def test_a_broker_whose_look_up_was_wrong_is_not_asked_again_while_others_can_be() -> None:
    cluster = FakeCluster(2)
    with Connection("broker-1:9092", network=cluster, rng=random.Random(1)) as connection:
        connection.ask(ANY_NODE, MetadataRequest(topics=None))
        before = lookups(cluster)
        connection.metadata.doubt(1)
        connection.ask(ANY_NODE, MetadataRequest(topics=None))
        assert lookups(cluster)[0] == before[0]


def test_a_broker_whose_look_up_was_wrong_is_asked_if_no_other_can_be_reached() -> None:
    cluster = FakeCluster(2)
    with Connection("broker-1:9092", network=cluster, rng=random.Random(1)) as connection:
        connection.ask(ANY_NODE, MetadataRequest(topics=None))
        cluster.brokers[2].stop()
        connection.metadata.doubt(1)
        before = lookups(cluster)
        connection.ask(ANY_NODE, MetadataRequest(topics=None))
        assert lookups(cluster)[0] > before[0]


def test_an_unknown_node_is_an_error_in_the_reply() -> None:
    (reply,) = collect(connection_to(FakeCluster()), 1, ask_for("flights", node=9))
    assert isinstance(reply.error, NoBrokerError) and not reply.was_sent


@pytest.mark.parametrize("how", ["cut", "cut after"])
def test_a_broken_connection_fails_its_calls_and_is_made_again(how: str) -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[1].fail_next(MetadataRequest, how)
    (reply,) = collect(connection, 1, ask_for("flights", node=1))

    assert isinstance(reply.error, ConnectionFailedError) and reply.was_sent
    assert connection.ask(1, MetadataRequest(topics=None)).cluster_id == "fake"


def test_calls_to_a_broker_that_left_the_metadata_fail_with_a_retriable_error() -> None:
    cluster = FakeCluster(2)
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[2].is_silent = True
    assert connection.poll(0, ask_for("flights", node=2)) == []
    del cluster.brokers[2]
    connection.metadata.renew()
    (reply,) = collect(connection, 1)

    assert isinstance(reply.error, ConnectionFailedError) and reply.error.retriable
    assert "no longer broker 2" in str(reply.error)


def test_a_call_that_times_out_fails_the_calls_after_it() -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster, {"request.timeout.ms": 2000})
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[1].is_silent = True
    start_ms = cluster.time_ms
    replies = collect(connection, 2, ask_for("a", node=1), ask_for("b", node=1))

    assert all(isinstance(reply.error, RequestTimeoutError) for reply in replies)
    assert cluster.time_ms - start_ms == 2000


def test_pauses_grow_with_each_failure_to_connect() -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster, {"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 1000})
    cluster.brokers[1].stop()
    with pytest.raises(NoBrokerError):
        connection.ask(ANY_NODE, MetadataRequest(topics=None), 10_000)

    assert 8 < len(cluster.brokers[1].channels) < 20


def test_an_api_that_the_broker_does_not_know_is_an_error() -> None:
    cluster = FakeCluster()
    del cluster.brokers[1].versions[DescribeClusterRequest.api.key]
    connection = connection_to(cluster)
    with pytest.raises(UnsupportedRequestError, match="does not know DescribeCluster"):
        connection.ask(ANY_NODE, DescribeClusterRequest(include_cluster_authorized_operations=False))


def test_no_common_version_is_an_error() -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    cluster.brokers[1].versions[3] = (40, 50)
    cluster.brokers[1].stop()
    connection.poll(100)
    cluster.brokers[1].start()
    (reply,) = collect(connection, 1, ask_for("flights", node=1))
    assert isinstance(reply.error, UnsupportedRequestError) and "40 to 50" in str(reply.error)


def test_a_broker_that_speaks_only_version_0_of_api_versions_is_understood() -> None:
    cluster = FakeCluster()
    cluster.brokers[1].versions[18] = (0, 0)
    assert connection_to(cluster).ask(ANY_NODE, MetadataRequest(topics=None)).cluster_id == "fake"


def test_partial_reads_and_writes_lose_nothing() -> None:
    cluster = FakeCluster()
    cluster.brokers[1].send_bytes = cluster.brokers[1].receive_bytes = 3
    assert connection_to(cluster).ask(ANY_NODE, MetadataRequest(topics=None)).cluster_id == "fake"


def test_nonsense_in_place_of_a_response_closes_the_connection() -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster)
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    for nonsense in (b"\x7f\xff\xff\xff", b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\x04\0\0\xff\xff"):
        cluster.brokers[1].channels[-1].outbox += nonsense
        (reply,) = collect(connection, 1, ask_for("flights", node=1))
        assert isinstance(reply.error, ConnectionFailedError)
        assert connection.ask(1, MetadataRequest(topics=None)).cluster_id == "fake"


def test_idle_connections_are_closed() -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster, {"connections.max.idle.ms": 1000})
    connection.ask(ANY_NODE, MetadataRequest(topics=None))
    for _ in range(3):
        connection.poll(1000)

    assert all(channel.is_closed for channel in cluster.brokers[1].channels)
    assert connection.ask(1, MetadataRequest(topics=None)).cluster_id == "fake"


def test_metadata_keeps_to_the_newest_leader_epoch() -> None:
    cluster = FakeCluster(2)
    (partition,) = cluster.add_topic("flights")
    partition.leader, partition.leader_epoch = 2, 7
    connection = connection_to(cluster)
    connection.metadata.want("flights")
    for _ in range(5):
        connection.poll(100)
    partition.leader, partition.leader_epoch = 1, 6  # a broker with outdated metadata
    connection.metadata.renew()
    for _ in range(5):
        connection.poll(100)
    assert connection.metadata.leader("flights", 0) == 2


def test_metadata_that_names_an_unknown_broker_as_a_leader_is_asked_for_again() -> None:
    """The broker that answered has heard of the leader, and not of its registration yet."""
    metadata = Metadata(
        max_age_ms=300_000,
        backoff=Backoff(100, 1_000, random.Random(1)),
        allow_auto_topic_creation=False,
    )
    metadata.want("flights")
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=2, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
    )
    topic = MetadataResponseTopic(error_code=0, name="flights", partitions=[partition])
    answer = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="a", port=1)], topics=[topic])
    metadata.update(answer, metadata.request(1_000), 1_010)
    assert metadata.due_at_ms() == 1_100, "after retry.backoff.ms"

    answer.brokers.append(MetadataResponseBroker(node_id=2, host="b", port=2))
    metadata.update(answer, metadata.request(1_100), 1_110)
    assert metadata.due_at_ms() == 301_110


def test_metadata_errors_are_remembered_and_forgotten() -> None:
    cluster = FakeCluster()
    connection = connection_to(cluster)
    connection.metadata.want("flights")
    for _ in range(4):
        connection.poll(50)
    error = connection.metadata.topic_error("flights")
    assert error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.add_topic("flights")
    for _ in range(8):
        connection.poll(50)
    assert connection.metadata.topic_error("flights") is None
    assert connection.metadata.leader("flights", 0) == 1


def test_a_closed_connection_refuses_calls() -> None:
    connection = connection_to(FakeCluster())
    connection.close()
    with pytest.raises(ClosedError):
        connection.poll(0)


def _accept(index: int, size: int) -> None:
    """Accept a frame of any size."""


class TestFrames:
    @pytest.mark.parametrize("step", [1, 7, 1000, 10**6])
    def test_frames_of_all_sizes_survive_partial_reads(self, step: int) -> None:
        rng = random.Random(3)
        frames = [rng.randbytes(size) for size in (4, 5, 100, 65_531, 65_532, 65_533, 200_000, 9)]
        stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        reader = FrameReader()
        found: list[bytes] = []
        position = 0
        while position < len(stream):
            buffer = reader.buffer()
            count = min(step, len(buffer), len(stream) - position)
            buffer[:count] = stream[position : position + count]
            position += count
            found += [bytes(frame) for frame in reader.advance(count, _accept)]
        assert found == frames

    @pytest.mark.parametrize("size", [-1, 0, 3])
    def test_impossible_sizes_are_refused(self, size: int) -> None:
        reader = FrameReader()
        reader.buffer()[:4] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(MalformedMessage):
            reader.advance(4, _accept)


@pytest.mark.parametrize(
    "call",
    [
        lambda connection: connection.poll("5"),
        lambda connection: connection.poll(1.5),
        lambda connection: connection.poll(0, "call"),
        lambda connection: connection.poll(0, Call(ANY_NODE, "request")),
        lambda connection: connection.poll(0, Call("1", MetadataRequest(topics=None))),
        lambda connection: connection.ask(ANY_NODE, MetadataRequest(topics=None), "5"),
        lambda connection: connection.ask(None, MetadataRequest(topics=None)),
    ],
)
def test_a_call_of_a_wrong_type_is_refused_and_the_next_one_is_answered(
    call: Callable[[Any], Any],
) -> None:
    connection = connection_to(FakeCluster())
    with pytest.raises(TypeError, match=r"Connection\.poll\(\): (timeout_ms|each call) must be"):
        call(connection)

    assert connection.ask(ANY_NODE, MetadataRequest(topics=None)).brokers


def test_a_request_that_cannot_be_encoded_fails_alone() -> None:
    connection = connection_to(FakeCluster())
    request: Any = MetadataRequest(topics=5)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="int"):
        connection.ask(ANY_NODE, request)

    assert connection.ask(ANY_NODE, MetadataRequest(topics=None)).brokers
