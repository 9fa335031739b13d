"""Clients of a broker whose answers are well-formed and wrong: bounded, told, backed off, and well again."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.headers import RequestHeader
from holdfast_log.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast_log.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataResponse
from holdfast_log.testing.fakes.fake_broker import FakeBroker, FakeChannel
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.test_consumer import FLIGHTS, fill, read, reader_on

Twist = Callable[[Any], Response | None]


def twist(cluster: FakeCluster, kind: type[Response], change: Twist) -> Callable[[], None]:
    """Change every response of a kind. Returns what ends that."""

    def hook(broker: FakeBroker) -> Callable[[], None]:
        honest = broker._send

        def send(channel: FakeChannel, header: RequestHeader, response: Response) -> None:
            cluster.time_ms += 5  # A busy loop must move the clock of the test.
            changed = change(response) if isinstance(response, kind) else response
            if changed is not None:
                honest(channel, header, changed)

        broker._send = send  # type: ignore[method-assign]
        return lambda: setattr(broker, "_send", honest)

    ends = [hook(broker) for broker in cluster.brokers.values()]
    return lambda: [end() for end in ends] and None


def requests(cluster: FakeCluster, kind: type) -> int:
    return sum(isinstance(each, kind) for broker in cluster.brokers.values() for each in broker.requests)


@pytest.fixture
def cluster() -> FakeCluster:
    return cluster_of_flights()


def cluster_of_flights() -> FakeCluster:
    """One broker, with 20 records in the only partition of "flights"."""
    cluster = FakeCluster()
    (partition,) = cluster.add_topic("flights")
    fill(partition, 20)
    return cluster


def none_of_the_asked(response: FetchResponse) -> FetchResponse:
    response.responses = []
    return response


def another_partition(response: FetchResponse) -> FetchResponse:
    response.responses[0].partitions[0].partition_index = 7
    return response


def another_topic(response: FetchResponse) -> FetchResponse:
    rows = response.responses[0].partitions
    response.responses.append(FetchableTopicResponse(topic="other", partitions=rows))
    return response


def twice(response: FetchResponse) -> FetchResponse:
    response.responses[0].partitions *= 2
    return response


def no_high_watermark(response: FetchResponse) -> FetchResponse:
    response.responses[0].partitions[0].high_watermark = -5
    return response


def none_of_the_offsets(response: ListOffsetsResponse) -> ListOffsetsResponse:
    response.topics = []
    return response


def throttled_and_empty(response: FetchResponse) -> FetchResponse:
    response.responses, response.throttle_time_ms = [], 1
    return response


@pytest.mark.parametrize(
    "change",
    [none_of_the_asked, another_partition, another_topic, twice, no_high_watermark, throttled_and_empty],
)
def test_a_fetch_answer_to_another_question_is_asked_again_with_growing_pauses(
    cluster: FakeCluster, change: Twist, caplog: pytest.LogCaptureFixture
) -> None:
    end = twist(cluster, FetchResponse, change)
    with caplog.at_level(logging.WARNING), reader_on(cluster) as consumer:
        assert consumer.poll(12_000) == []
        assert 5 < requests(cluster, FetchRequest) < 40  # Without a pause it would be thousands.
        told = [line for line in caplog.messages if "answer" in line]
        assert 1 <= len(told) <= 3
        end()
        assert len(read(consumer, 20)) == 20


def test_batches_below_the_asked_offset_are_asked_for_again_with_growing_pauses(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), reader_on(cluster) as consumer:
        read(consumer, 20)
        old = bytes(cluster.topics["flights"][0].batches[0])
        before = requests(cluster, FetchRequest)

        def old_batch(response: FetchResponse) -> FetchResponse:
            response.responses[0].partitions[0].records = memoryview(old)
            return response

        end = twist(cluster, FetchResponse, old_batch)
        assert consumer.poll(12_000) == []
        assert requests(cluster, FetchRequest) - before < 40
        assert sum("before the asked offset 20" in line for line in caplog.messages) == 1
        end()
        fill(cluster.topics["flights"][0], 5)
        assert [record.offset for record in read(consumer, 5)] == [20, 21, 22, 23, 24]


@pytest.mark.parametrize("offset", [None, -1, -7])
def test_an_offset_look_up_without_an_offset_is_asked_again_with_growing_pauses(
    cluster: FakeCluster, offset: int | None
) -> None:
    def change(response: ListOffsetsResponse) -> ListOffsetsResponse:
        if offset is None:
            response.topics = []
        else:
            response.topics[0].partitions[0].offset = offset
        return response

    end = twist(cluster, ListOffsetsResponse, change)
    with reader_on(cluster) as consumer:
        assert consumer.poll(12_000) == []
        assert requests(cluster, ListOffsetsRequest) < 40
        end()
        assert len(read(consumer, 20)) == 20


def test_a_refusing_leader_is_asked_less_and_less_often(cluster: FakeCluster) -> None:
    def refuse(response: FetchResponse) -> FetchResponse:
        response.responses[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return response

    end = twist(cluster, FetchResponse, refuse)
    with reader_on(cluster) as consumer:
        consumer.poll(12_000)
        assert requests(cluster, FetchRequest) < 30
        assert requests(cluster, MetadataRequest) < 30
        end()
        assert len(read(consumer, 20)) == 20


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("broker-1", 0), ("broker-1", 70_000)])
def test_metadata_with_a_broker_that_has_no_address_is_not_followed(
    cluster: FakeCluster, host: str, port: int
) -> None:
    def change(response: MetadataResponse) -> MetadataResponse:
        response.brokers[0].host, response.brokers[0].port = host, port
        return response

    end = twist(cluster, MetadataResponse, change)
    with reader_on(cluster) as consumer:
        consumer.poll(5_000)
        assert requests(cluster, MetadataRequest) < 30
        end()
        assert len(read(consumer, 20)) == 20


def test_a_throttle_of_weeks_is_obeyed_up_to_the_setting(cluster: FakeCluster) -> None:
    def throttle(response: FetchResponse) -> FetchResponse:
        response.throttle_time_ms = 2**31 - 1
        return response

    twist(cluster, FetchResponse, throttle)
    with reader_on(cluster, {"throttle.max.ms": 5000}) as consumer:
        read(consumer, 20)
        fill(cluster.topics["flights"][0], 5)
        records = [record for _ in range(10) for record in consumer.poll(1000)]
        assert len(records) == 5


def test_a_throttle_is_obeyed_up_to_the_setting_told_once_and_ended_by_wakeup_and_close(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def throttle(response: FetchResponse) -> FetchResponse:
        response.throttle_time_ms = 2**31 - 1
        return response

    twist(cluster, FetchResponse, throttle)
    with caplog.at_level(logging.WARNING):
        consumer = reader_on(cluster, {"throttle.max.ms": 5000})
        assert len(read(consumer, 20)) == 20
        fill(cluster.topics["flights"][0], 5)
        began_ms = cluster.time_ms
        assert len(read(consumer, 5)) == 5
        assert cluster.time_ms - began_ms <= 6000
        (line,) = [line for line in caplog.messages if "throttle" in line]
        assert "for 5000 ms" in line and "2147483647 ms" in line
        consumer.wake()
        began_ms = cluster.time_ms
        consumer.poll(4000)
        assert cluster.time_ms == began_ms
        consumer.close()
        assert cluster.time_ms - began_ms < 1000


def test_the_admin_client_tries_again_with_growing_pauses_and_tells_the_last_cause(
    cluster: FakeCluster,
) -> None:
    twist(cluster, ListOffsetsResponse, none_of_the_offsets)
    properties = {"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": 12_000}
    with Admin(properties, network=cluster, rng=random.Random(1)) as admin:
        with pytest.raises(ClientError, match="ListOffsets: the answer names none"):
            admin.list_offsets({FLIGHTS: -1})
        assert requests(cluster, ListOffsetsRequest) < 30


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NOT_COORDINATOR]
)
def test_a_coordinator_that_refuses_every_join_is_asked_less_and_less_often(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    def refuse(response: JoinGroupResponse) -> JoinGroupResponse:
        response.error_code, response.member_id = code, "somebody"
        return response

    end = twist(cluster, JoinGroupResponse, refuse)
    with reader_on(cluster, {"group.id": "g", "group.protocol": "classic"}) as consumer:
        assert consumer.poll(12_000) == []
        assert requests(cluster, JoinGroupRequest) < 60
        assert requests(cluster, FindCoordinatorRequest) < 60
        end()
        assert len(read(consumer, 20)) == 20


def test_a_poll_keeps_its_timeout_while_it_passes_over_batches_without_a_record(cluster: FakeCluster) -> None:
    (partition,) = cluster.topics["flights"]
    fill(partition, 2_000, per_batch=1)
    with reader_on(cluster) as consumer:
        read(consumer, 1)
        fetcher = consumer._fetcher
        for position in fetcher.positions.values():
            # What is stored has no record for the application, and each batch takes 10 ms.
            position.store = type(position.store)(
                stored._replace(is_skipped=True) for stored in position.store
            )
        passed = fetcher._now_ms

        def slow_ms() -> int:
            cluster.time_ms += 10
            return passed()

        fetcher._now_ms = slow_ms
        began_ms = cluster.time_ms
        consumer.poll(300)
        assert cluster.time_ms - began_ms < 1000
