"""The compiled `send` does what the one in Python does, and keeps nothing."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.clients.errors import ClosedError, UndeliveredError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.message_sender import send_in_python
from holdfast_log.clients.sending.responses import RecordResponse
from holdfast_log.protocol.send_fields import compiled
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle
from tests.clients.test_producer import producer_on

TOPICS = {"alone": 1, "flights": 5, "unknown": 0}


class OwnMessage(Message):
    """A message of the application's own class."""

    __slots__ = ()


class Text(str):
    """A string of the application's own class."""


ODD = st.sampled_from([b"", "", Text("text"), bytearray(b"bytes"), 7, "\ud800", True])
KEYS = st.one_of(st.none(), st.binary(max_size=9), st.text(max_size=9), ODD)
VALUES = st.one_of(st.none(), st.binary(max_size=400), st.text(max_size=40), ODD)
PARTITIONS = st.sampled_from([None, None, 0, 1, 4, -1, 2**31 - 1, 2**31, 2**70, True, "1"])
TIMESTAMPS = st.sampled_from([None, None, 0, 5, 2**63 - 1, 2**63, -1, 2**70, True, "5"])
HEADERS = st.sampled_from([(), (), (), [], (("name", b"value"),), [("name", None)], 5])
MESSAGES = st.builds(
    Message,
    st.sampled_from([*TOPICS, "unknown", "", 5, Text("flights")]),
    KEYS,
    VALUES,
    PARTITIONS,
    TIMESTAMPS,
    HEADERS,
    st.sampled_from([-1, -1, -1, -1, -2, 3, "3"]),
)


def ready(cluster: FakeCluster, **properties: Any) -> Producer:
    """A producer without a thread that knows the topics and has an open batch in some of their queues."""
    producer = producer_on(cluster, {"batch.size": 2000, "linger.ms": 1000, **properties})
    for topic, count in TOPICS.items():
        producer._accumulator._queues.topic(topic).set_partition_count(count)
        if count:
            producer.send(Message(topic, value=b"first", timestamp=1))
            producer.send(Message(topic, value=b"first", partition=0, timestamp=1))
    return producer


def outcome(send: Any, producer: Producer, message: Any) -> object:
    """What a call does, seen from outside."""
    try:
        response = send(producer, message)
    except Exception as error:
        return type(error), str(error)
    place = (response.topic, response.partition, response._index)
    return type(response), place, response.done, str(response.error)


def contents(producer: Producer) -> object:
    """All that is queued, and what it takes."""
    queues = producer._accumulator._queues
    batches = [
        (
            batch.topic,
            batch.partition,
            batch.cost,
            batch.is_closed,
            batch.builder.size,
            bytes(batch.builder.build()),
        )
        for batch in queues.pending()
        if batch.builder is not None
    ]
    return queues.used, batches, producer._accumulator.refused


@settings(deadline=None, max_examples=80)
@given(messages=st.lists(MESSAGES, max_size=25), memory=st.sampled_from([2**25, 6000]), closing=st.booleans())
def test_both_ways_to_send_do_the_same(messages: list[Message], memory: int, closing: bool) -> None:
    properties = {"buffer.memory": memory, "max.block.ms": 0}
    fast, slow = ready(FakeCluster(), **properties), ready(FakeCluster(), **properties)
    if closing:
        messages = [*messages, Message("flights", value=b"late")]
    for index, message in enumerate(messages):
        if closing and index == len(messages) - 1:
            for producer in (fast, slow):
                with suppress(UndeliveredError):
                    producer.close(0)
        assert outcome(Producer.send, fast, message) == outcome(send_in_python, slow, message)
    assert contents(fast) == contents(slow)


def test_arguments_that_are_no_message_are_refused_in_the_same_words() -> None:
    producer = ready(FakeCluster())
    for message in (None, "flights", 5, Message, OwnMessage("flights", value=5)):
        assert outcome(Producer.send, producer, message) == outcome(send_in_python, producer, message)
    with pytest.raises(ValueError, match="no message to send"):
        producer.send()
    assert len(producer.send(Message("flights"), OwnMessage("flights")).responses) == 2  # type: ignore[attr-defined]


def test_a_message_whose_field_was_deleted_is_refused() -> None:
    message = Message("flights", value=b"x")
    del message.value
    with pytest.raises(AttributeError, match="value"):
        ready(FakeCluster()).send(message)


def test_a_fork_and_a_closed_producer_refuse_usual_messages() -> None:
    producer = ready(FakeCluster())
    producer._accumulator._queues.fatal_error = ClosedError("made unusable")
    with pytest.raises(ClosedError, match="made unusable"):
        producer.send(Message("flights", value=b"x"))


def test_sending_keeps_nothing_and_leaves_no_cycle() -> None:
    cluster = FakeCluster()
    cluster.add_topic("flights", 3)
    producer = producer_on(cluster, {"linger.ms": 0})
    producer.send(Message("flights", value=b"first"))
    assert settle(producer)
    topic, key, value = "flights" + "!"[:0], b"k" * 30, b"v" * 30
    names = [Message, RecordResponse, topic, key, value, None, ()]
    counts = []
    for _ in range(3):
        for number in range(300):
            producer.send(Message(topic, key, value))
            producer.send(Message(topic, value=value, partition=number % 3, timestamp=10**12 + number))
            producer.send(Message(topic, "text", value=value))
        assert settle(producer)
        cluster.topics["flights"][0].batches.clear()
        gc.collect()
        counts.append([sys.getrefcount(name) for name in names[:5]])
    assert counts[1] == counts[2]
    gc.disable()
    try:
        for _ in range(300):
            producer.send(Message(topic, key, value))
        assert gc.collect() < 20
    finally:
        gc.enable()
    producer.close()


def test_threads_share_a_batch_without_losing_a_record() -> None:
    producer = ready(FakeCluster(), **{"batch.size": 2**20, "buffer.memory": 2**28})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(
                target=lambda: [producer.send(Message("flights", value=b"12345678")) for _ in range(3000)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    queues = producer._accumulator._queues
    assert sum(len(batch) for batch in queues.pending() if batch.topic == "flights") == 12_002
    assert queues.used == sum(batch.cost for batch in queues.pending())


class TestMessage:
    def test_it_is_a_dataclass_like_any_other(self) -> None:
        message = Message("flights", "UA", headers=(("name", None),), timestamp=5)
        assert replace(message, key=b"LH") == Message("flights", b"LH", None, None, 5, (("name", None),))
        assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == copy.copy(message) == message
        assert repr(Message("t")).startswith("Message(topic='t', key=None, value=None, partition=None, ")
        with pytest.raises(AttributeError):
            message.colour = "red"  # type: ignore[attr-defined]

    def test_its_parameters_and_those_of_send_are_shown(self) -> None:
        parameters = inspect.signature(Message).parameters
        assert list(parameters) == list(Message.__dataclass_fields__)
        assert parameters["offset"].default == -1 and parameters["headers"].default == ()
        assert str(inspect.signature(Producer.send)).startswith("(self, ") and "*messages" in str(
            inspect.signature(Producer.send)
        )
        assert (Producer.send.__doc__ or "").startswith("Queue messages and return at once")

    @pytest.mark.parametrize(
        ("args", "kwargs", "says"),
        [
            ((), {}, "'topic'"),
            ((), {"value": b"x"}, "'topic'"),
            (("t",) * 10, {}, "positional arguments"),
            (("t",), {"topic": "t"}, "multiple values"),
            (("t",), {"colour": 1}, "colour"),
        ],
    )
    def test_wrong_arguments_are_named(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(TypeError, match=says):
            Message(*args, **kwargs)

    def test_names_that_are_not_interned_are_known(self) -> None:
        assert Message("t", **{"".join(["val", "ue"]): b"x"}).value == b"x"

    def test_a_message_in_a_cycle_is_collected(self) -> None:
        gc.collect()
        message = Message("t")
        message.value = [message]
        del message
        assert gc.collect() >= 2


@pytest.mark.skipif(compiled is None, reason="protocol/_send_path.c was not compiled, or is not used")
def test_classes_of_another_kind_cannot_be_bound() -> None:
    assert compiled is not None
    with pytest.raises(TypeError, match="does not inherit"):
        compiled.bind(send_in_python, *[int] * 6)
    with pytest.raises(TypeError, match="not the class of messages"):
        compiled.bind_message(int, (), ())
