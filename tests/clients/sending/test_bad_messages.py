"""Whatever a message holds: it fails alone, in `send`, and says what to write; the producer works on."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from holdfast_log.clients.errors import UndeliveredError
from holdfast_log.clients.message import ConsumerRecord, Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending import sender
from holdfast_log.clients.sending.conditions import FEATURE
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights", 2)
    return cluster


def producer_on(cluster: FakeCluster, **more: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0}
    return Producer(given, network=cluster, rng=random.Random(1), is_threaded=False, **more)


class Liar(str):
    """A name whose encoding is another one each time."""

    def encode(self, *_: Any) -> bytes:  # type: ignore[override]
        return b"x" * random.randrange(100)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"timestamp": 1.5}, r"timestamp .*not float 1\.5: write int\(1\.5 \* 1000\) if it is in seconds"),
    ({"timestamp": "2024"}, "timestamp .*not str '2024'"),
    ({"timestamp": 2**63}, "timestamp .*not int 9223372036854775808"),
    ({"timestamp": True}, "timestamp .*not bool True"),
    ({"partition": 0.0}, r"partition .*not float 0\.0"),
    ({"partition": "0"}, "partition .*not str '0'"),
    ({"partition": True}, "partition .*not bool True"),
    ({"partition": 2**31}, "partition .*not int 2147483648"),
    ({"topic": ["flights"]}, r"topic .*not list \['flights'\]"),
    ({"topic": "\ud800"}, "topic .*half a surrogate pair"),
    ({"headers": 5}, "headers .*not int 5"),
    ({"headers": {"trace": b"1"}}, "a header is a pair of name and value, not str 'trace'"),
    ({"headers": [("trace", b"1", b"2")]}, "a header is a pair"),
    ({"headers": [iter(("trace", b"1"))]}, "a header is a pair"),
    ({"headers": [("trace", 1)]}, "the value of header 'trace' is bytes or None, not int"),
    ({"offset": 1.5, "partition": 0}, r"offset .*not float 1\.5"),
    ({"offset": "3", "partition": 0}, "offset .*not str '3'"),
    ({"offset": 2**63, "partition": 0}, "offset .*not int"),
    ({"expected_version": 1.5, "key": b"k"}, r"expected_version .*not float 1\.5"),
    ({"expected_version": "1", "key": b"k"}, "expected_version .*not str '1'"),
    ({"value": 5}, "keys and values are bytes, str or None, not int"),
    ({"key": 1.5}, "keys and values are bytes, str or None, not float"),
]


@pytest.mark.parametrize(("fields", "why"), BAD, ids=lambda each: str(each)[:40])
@pytest.mark.parametrize("is_known", [False, True], ids=["first", "later"])
def test_a_bad_message_fails_alone(
    cluster: FakeCluster, fields: dict[str, Any], why: str, is_known: bool
) -> None:
    producer = producer_on(cluster)
    if is_known:
        producer.send(Message("flights", value="warm"))
        producer.flush(10_000)
    before = producer.send(Message("flights", key="k", value="before"))
    with pytest.raises((TypeError, ValueError), match=why):
        producer.send(Message(**{"topic": "flights", "value": b"bad", **fields}))
    after = producer.send(Message("flights", key="k", value="after"))

    assert producer.flush(10_000)
    assert (before.error, after.error) == (None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        ("flights", b"v"),
        (b"flights", b"v"),
        (TopicPartition("flights", 0),),
        ({"topic": "flights"},),
        (None,),
        (Message("flights", value="v"), "flights"),
        (ConsumerRecord("flights", 0, 5, 1, None, b"v"),),
    ],
)
def test_what_other_clients_take_is_refused_with_the_right_spelling(
    cluster: FakeCluster, wrong: tuple[Any, ...]
) -> None:
    producer = producer_on(cluster)

    with pytest.raises(TypeError, match=r"must be a Message, not .*write .*Message\("):
        producer.send(*wrong)

    assert producer.flush(10_000)
    assert sum(partition.end_offset for partition in cluster.topics["flights"]) == 0


@pytest.mark.parametrize(
    ("header", "value"),
    [(("h", memoryview(array("i", [1, 2]))), array("i", [1, 2]).tobytes()), ((Liar("h"), b"1"), b"1")],
)
def test_headers_are_what_they_were_in_send(cluster: FakeCluster, header: Any, value: bytes) -> None:
    producer = producer_on(cluster)
    for _ in range(3):
        producer.send(Message("flights", value="v", partition=0, headers=[header]))

    assert producer.flush(10_000)
    records = cluster.topics["flights"][0].records()
    assert [record.headers for record in records] == [(("h", value),)] * 3


@pytest.mark.parametrize("chosen", [-2, 1.5, "0", 2**40])
@pytest.mark.parametrize("is_known", [False, True], ids=["first", "later"])
def test_a_partitioner_that_chooses_nonsense_fails_its_message_only(
    cluster: FakeCluster, chosen: Any, is_known: bool
) -> None:
    producer = producer_on(cluster, partitioner=lambda _topic, key, _count: chosen if key == b"bad" else 0)
    if is_known:
        producer.send(Message("flights", value="warm"))
        producer.flush(10_000)
    errors: list[Exception | None] = []
    try:
        producer.send(Message("flights", key="bad", value="v")).on_completion(
            lambda response: errors.append(response.error)
        )
    except (TypeError, ValueError) as error:
        errors.append(error)
    after = producer.send(Message("flights", key="good", value="v"))

    assert producer.flush(10_000)
    (error,) = errors
    assert isinstance(error, TypeError | ValueError) and "partition" in str(error)
    assert after.error is None


def test_numbers_of_other_libraries_are_taken(cluster: FakeCluster) -> None:
    class Number:
        def __init__(self, number: int) -> None:
            self.number = number

        def __index__(self) -> int:
            return self.number

    producer = producer_on(cluster)
    sent: Any = Message("flights", value="v", partition=Number(1), timestamp=Number(77))  # type: ignore[arg-type]
    response = producer.send(sent)

    assert producer.flush(10_000)
    assert (response.partition, response.timestamp) == (1, 77)


def curse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every batch with a certain message fail when it is encoded."""
    encode = sender.encode

    def encode_most(batch: Any, sequences: Any, **given: Any) -> None:
        if batch.builder is not None and b"cursed" in batch.builder.values:
            raise RuntimeError("cursed")
        encode(batch, sequences, **given)

    monkeypatch.setattr(sender, "encode", encode_most)


def test_what_cannot_be_encoded_all_the_same_fails_its_batch_only(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_on(cluster)
    producer.send(Message("flights", value="warm", partition=0))
    producer.flush(10_000)
    curse(monkeypatch)
    bad = producer.send(Message("flights", value=b"cursed", partition=0))
    beside = producer.send(Message("flights", value="beside", partition=1))
    with pytest.raises(UndeliveredError, match=r"1 message was not delivered: .*RuntimeError: cursed"):
        producer.flush(10_000)
    after = [producer.send(Message("flights", value="after", partition=n % 2)) for n in range(4)]

    assert producer.flush(10_000)
    assert isinstance(bad.error, RuntimeError) and beside.error is None
    assert [response.error for response in after] == [None] * 4


def test_a_conditional_message_that_cannot_be_encoded_fails_those_behind_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.brokers[1].features[FEATURE] = 1
    producer = producer_on(cluster)
    curse(monkeypatch)
    first = producer.send_at(0, Message("flights", value=b"cursed", partition=0))
    second = producer.send_at(1, Message("flights", value=b"v", partition=0))
    with pytest.raises(UndeliveredError):
        producer.flush(10_000)

    assert isinstance(first.error, RuntimeError) and second.error is not None
    third = producer.send_at(0, Message("flights", value=b"v", partition=0))
    assert producer.flush(10_000) and third.offset == 0
