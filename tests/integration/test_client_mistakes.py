"""Mistakes of applications, on a real broker: each is reported, none costs a record or a wait without end."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable

import pytest

from holdfast_log.clients.admin.admin import Admin
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import (
    ConcurrentUseError,
    GuardMismatchError,
    InsideCallbackError,
    UndeliveredError,
    UnreachableError,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import UnknownTopicOrPartitionError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import BackgroundBroker
from tests.integration.clients import create_topic
from tests.integration.programs import finished

WAIT_MS = 60_000
NOBODY = "127.0.0.1:1"


def consumer_of(broker: BackgroundBroker, **properties: object) -> Consumer:
    return Consumer({"bootstrap.servers": broker.address, "auto.offset.reset": "earliest", **properties})


def values_of(broker: BackgroundBroker, topic: str, count: int) -> list[bytes]:
    """The first values of partition 0."""
    with consumer_of(broker) as consumer:
        consumer.add_topic(topic, 0)
        values: list[bytes] = []
        while len(values) < count:
            values += [record.value for record in consumer.poll(WAIT_MS)]
        return values


class TestAddresses:
    @pytest.fixture(params=["nobody", "ZooKeeper"])
    def wrong(self, request: pytest.FixtureRequest, zookeeper_server: str) -> dict[str, object]:
        """Properties with the address of no broker. Java's ZooKeeper closes a connection of Kafka's protocol,
        another one may keep it and not answer."""
        address = NOBODY if request.param == "nobody" else zookeeper_server.partition(",")[0]
        return {"bootstrap.servers": address, "bootstrap.timeout.ms": 1000, "client.id": "lost"}

    def test_poll_and_calls_that_wait_raise_with_the_address(
        self, wrong: dict[str, object], caplog: pytest.LogCaptureFixture
    ) -> None:
        address = str(wrong["bootstrap.servers"])
        with Consumer(wrong) as consumer:
            consumer.add_topic("flights")
            with pytest.raises(UnreachableError, match=address):
                for _ in range(10):
                    consumer.poll(WAIT_MS)
        with Admin(wrong) as admin, pytest.raises(UnreachableError, match=address):
            admin.list_topics()
        loggers = {record.name for record in caplog.records if address in record.getMessage()}
        assert loggers == {"holdfast.consumer.lost", "holdfast.admin.lost"}

    def test_a_block_of_a_producer_raises_with_the_number_of_records(self, wrong: dict[str, object]) -> None:
        with (
            pytest.raises(UndeliveredError, match="100 messages were not delivered") as caught,
            Producer(wrong) as producer,
        ):
            producer.send_many("flights", ["v"] * 100)
        (loss,) = caught.value.losses
        assert loss.count == 100 and isinstance(loss.error, UnreachableError)

    def test_one_wrong_address_beside_a_right_one_costs_a_warning_at_most(
        self, broker: BackgroundBroker, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        create_topic(broker.address, topic)
        with Producer({"bootstrap.servers": f"{NOBODY},{broker.address}"}) as producer:
            producer.send_many(topic, ["v"] * 100).result(WAIT_MS)
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1


class TestUnknownTopics:
    def test_a_consumer_raises_once_and_reads_the_topic_when_it_exists(
        self, broker: BackgroundBroker, topic: str
    ) -> None:
        with consumer_of(broker, **{"unknown.topics": "raise"}) as consumer:
            consumer.add_topic(topic)
            with pytest.raises(UnknownTopicOrPartitionError, match=f"topic {topic} does not exist"):
                consumer.poll(WAIT_MS)
            assert isinstance(consumer.last_error(TopicPartition(topic, 0)), UnknownTopicOrPartitionError)
            create_topic(broker.address, topic)
            with Producer({"bootstrap.servers": broker.address}) as producer:
                producer.send(Message(topic, value="v", partition=0)).result(WAIT_MS)
            assert [record.value for record in consumer.poll(WAIT_MS)] == [b"v"]

    def test_a_consumer_raises_for_a_partition_that_the_topic_does_not_have(
        self, broker: BackgroundBroker, topic: str
    ) -> None:
        create_topic(broker.address, topic)
        with consumer_of(broker, **{"unknown.topics": "raise"}) as consumer:
            consumer.add_topic(topic, 7)
            with pytest.raises(UnknownTopicOrPartitionError, match=f"topic {topic} has no partition 7"):
                consumer.poll(WAIT_MS)

    def test_by_default_one_warning_reports_it(
        self, broker: BackgroundBroker, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with consumer_of(broker) as consumer:
            consumer.add_topic(topic)
            while not caplog.records:
                assert consumer.poll(100) == []
            for _ in range(5):
                assert consumer.poll(100) == []
        (line,) = caplog.messages
        assert f"topic {topic} does not exist" in line

    def test_a_producer_fails_at_once_for_a_partition_that_the_topic_does_not_have(
        self, broker: BackgroundBroker, topic: str
    ) -> None:
        create_topic(broker.address, topic)
        with Producer({"bootstrap.servers": broker.address, "delivery.timeout.ms": 10 * WAIT_MS}) as producer:
            lost = producer.send(Message(topic, value="v", partition=99))
            with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic} has no partition 99: it has 1"):
                lost.result(WAIT_MS)


def test_a_header_as_text_is_refused_by_name_and_costs_no_other_message(
    broker: BackgroundBroker, topic: str
) -> None:
    create_topic(broker.address, topic)
    with Producer({"bootstrap.servers": broker.address}) as producer:
        producer.send(Message(topic, value="before", headers=[("trace", b"1")]))
        with pytest.raises(TypeError, match="the value of header 'trace' is bytes or None, not str"):
            producer.send(Message(topic, value="refused", headers=[("trace", "1")]))  # type: ignore[list-item]
        producer.send(Message(topic, value="after"))
    assert values_of(broker, topic, 2) == [b"before", b"after"]


def test_a_guard_mismatch_can_be_sent_to_another_process(broker: BackgroundBroker, topic: str) -> None:
    create_topic(broker.address, topic, partitions=2)
    guard = TopicPartition(topic, 1)
    with Producer({"bootstrap.servers": broker.address}) as producer:
        producer.send(Message(topic, value="v", partition=1)).result(WAIT_MS)
        with pytest.raises(GuardMismatchError) as refused:
            producer.send_at(0, Message(topic, value="w", partition=0), guards={guard: 7}).result(WAIT_MS)
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (type(copy), str(copy), copy.next_offsets) == (GuardMismatchError, str(refused.value), {guard: 1})


def test_threads_that_share_a_consumer_get_each_record_once_or_an_error_that_says_so(
    broker: BackgroundBroker, topic: str
) -> None:
    create_topic(broker.address, topic)
    with Producer({"bootstrap.servers": broker.address}) as producer:
        producer.send_many(topic, ["v"] * 2_000, partition=0).result(WAIT_MS)
    offsets: list[int] = []
    refused: list[ConcurrentUseError] = []
    is_refused = threading.Event()
    strange: list[BaseException] = []

    def wait(topic: str, value: bytes) -> bytes:
        """Hold up the first poll until another thread has polled too."""
        assert is_refused.wait(WAIT_MS / 1000)
        return value

    properties = {"bootstrap.servers": broker.address, "auto.offset.reset": "earliest", "max.poll.records": 3}
    with Consumer(properties, value_deserializer=wait) as consumer:
        consumer.add_topic(topic, 0)

        def poll() -> None:
            while len(offsets) < 2_000 and not strange:
                try:
                    offsets.extend(record.offset for record in consumer.poll(100))
                except ConcurrentUseError as error:
                    refused.append(error)
                    is_refused.set()
                except BaseException as error:
                    strange.append(error)

        threads = [threading.Thread(target=poll) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * WAIT_MS / 1000)

    assert strange == [] and sorted(offsets) == list(range(2_000))
    assert "was called in thread" in str(refused[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_process_needs_a_producer_of_its_own_and_the_first_process_keeps_its_own(
    broker: BackgroundBroker, topic: str
) -> None:
    create_topic(broker.address, topic)
    program = f"""
import os
from holdfast_log import ForkedError, Message, Producer
properties = {{"bootstrap.servers": "{broker.address}"}}
with Producer(properties) as producer:
    producer.send(Message("{topic}", value="before")).result(60_000)
    child = os.fork()
    if child == 0:
        try:
            producer.send(Message("{topic}", value="lost"))
        except ForkedError as error:
            print(error, flush=True)
        with Producer(properties) as own:
            own.send(Message("{topic}", value="of the child"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    producer.send(Message("{topic}", value="of the parent")).result(60_000)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    done = finished([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("this producer belongs to process ")
    assert values_of(broker, topic, 3) == [b"before", b"of the child", b"of the parent"]


@pytest.mark.parametrize("call", ["result", "flush", "close"])
def test_a_call_that_waits_inside_a_callback_raises_and_the_producer_continues(
    broker: BackgroundBroker, call: str
) -> None:
    topic = f"{call}-inside-a-callback"
    create_topic(broker.address, topic)
    errors: list[Exception] = []
    called = threading.Event()
    with Producer({"bootstrap.servers": broker.address}) as producer:

        def callback(_: SendResponse) -> None:
            late = producer.send(Message(topic, value="second"))
            waits: dict[str, Callable[[], object]] = {
                "result": late.result,
                "flush": producer.flush,
                "close": producer.close,
            }
            try:
                waits[call]()
            except InsideCallbackError as error:
                errors.append(error)
            called.set()

        producer.send(Message(topic, value="first")).on_completion(callback)
        assert called.wait(WAIT_MS / 1000)
        producer.send(Message(topic, value="third")).result(WAIT_MS)
    assert len(errors) == 1 and f"{call}() was called inside a callback" in str(errors[0])
    assert values_of(broker, topic, 3) == [b"first", b"second", b"third"]
