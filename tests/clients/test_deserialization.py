"""A consumer whose deserializer raises: no neighbour of the record is lost, and the application decides."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.dead_letter import DeadLetterTopic
from holdfast_log.clients.errors import ConfigError, RecordDeserializationError
from holdfast_log.clients.feedback.events import Event, RecordDeadLettered, RecordSkipped
from holdfast_log.clients.message import ConsumerRecord, Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.groups.party import Party
from tests.clients.test_consumer import FLIGHTS, fill, read, reader_on
from tests.models.batches import encoded

BAD = 150
"""The offset of the record with the bad value: in the middle of the second batch of a hundred."""


def to_int(topic: str, value: bytes) -> int:
    return int(value)


def fill_around(cluster: FakeCluster, partition: int = 0) -> None:
    """300 records in 3 batches; the value at offset `BAD` is no number."""
    rows = [(offset * 1000, b"k%d" % offset, b"%d" % offset) for offset in range(300)]
    rows[BAD] = (BAD * 1000, b"k%d" % BAD, b"bad")
    for start in (0, 100, 200):
        cluster.topics["flights"][partition].append(memoryview(encoded(rows[start : start + 100])))


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    fill_around(cluster)
    return cluster


class ImmediateProducer(Producer):
    """A producer without a thread, each of whose messages is acknowledged when `send` returns."""

    def send(self, message: Message) -> SendResponse:
        response = super().send(message)
        self.flush()
        return response


def drain(
    consumer: Consumer, polls: int = 30
) -> tuple[list[ConsumerRecord], list[RecordDeserializationError]]:
    """The records and the errors of several polls."""
    records: list[ConsumerRecord] = []
    errors = []
    for _ in range(polls):
        try:
            records += consumer.poll(20)
        except RecordDeserializationError as error:
            errors.append(error)
    return records, errors


class TestStopping:
    def test_all_records_before_the_unreadable_one_come_first_and_seek_continues_after_it(
        self, cluster: FakeCluster
    ) -> None:
        consumer = reader_on(cluster, value_deserializer=to_int)
        before, errors = drain(consumer)

        assert [record.offset for record in before] == list(range(BAD))
        assert errors and {error.offset for error in errors} == {BAD}
        assert consumer.position(FLIGHTS) == BAD and consumer.last_error(FLIGHTS) is errors[-1]
        consumer.seek(FLIGHTS, BAD + 1)
        after, errors = drain(consumer)
        assert [record.value for record in after] == list(range(BAD + 1, 300)) and errors == []

    @pytest.mark.parametrize("limit", [1, 7, 149, 150, 151])
    def test_the_size_of_a_poll_changes_nothing(self, cluster: FakeCluster, limit: int) -> None:
        consumer = reader_on(cluster, {"max.poll.records": limit}, value_deserializer=to_int)
        records, errors = drain(consumer, 400)

        assert [record.offset for record in records] == list(range(BAD))
        assert {error.offset for error in errors} == {BAD}

    def test_the_error_has_the_coordinates_the_raw_record_and_the_cause(self, cluster: FakeCluster) -> None:
        headers = (("trace", b"1"),)
        cluster.topics["flights"][0].batches.clear()
        cluster.topics["flights"][0].end_offset = 0
        row: Any = (77_000, b"\xffkey", b"bad", headers)
        cluster.topics["flights"][0].append(memoryview(encoded([row])))
        consumer = reader_on(cluster, value_deserializer=to_int)
        _, (error, *_) = drain(consumer)

        assert (error.topic, error.partition, error.offset, error.timestamp) == ("flights", 0, 0, 77_000)
        assert (error.key, error.value, tuple(error.headers)) == (b"\xffkey", b"bad", headers)
        assert error.part == "value" and isinstance(error.__cause__, ValueError)
        assert "flights-0 at offset 0" in str(error) and "seek" in str(error)
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.record, again.part) == (str(error), error.record, error.part)

    def test_a_key_that_cannot_be_read_is_named(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, key_deserializer=lambda topic, key: 1 / (key != b"k7"))
        records, (error, *_) = drain(consumer)

        assert len(records) == 7 and error.part == "key" and isinstance(error.__cause__, ZeroDivisionError)

    def test_other_partitions_are_read_on_and_the_error_is_raised_among_their_records(self) -> None:
        cluster = FakeCluster(2)
        partitions = cluster.add_topic("flights", 2)
        fill_around(cluster)
        fill(partitions[1], 1000)
        consumer = reader_on(
            cluster, {"max.poll.records": 33, "max.partition.fetch.bytes": 500}, value_deserializer=to_int
        )
        records, errors = drain(consumer, 300)

        assert [r.offset for r in records if r.partition == 0] == list(range(BAD))
        assert [r.offset for r in records if r.partition == 1] == list(range(1000))
        assert len(errors) > 10
        fill(partitions[1], 10)
        more, _ = drain(consumer)
        assert len(more) == 10

    def test_unreadable_records_of_two_partitions_are_raised_in_turn(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 2)
        fill_around(cluster, 0)
        fill_around(cluster, 1)
        consumer = reader_on(cluster, value_deserializer=to_int)
        records, errors = drain(consumer)

        assert len(records) == 2 * BAD and {error.partition for error in errors} == {0, 1}
        consumer.seek(TopicPartition("flights", 1), BAD + 1)
        records, errors = drain(consumer)
        assert {r.partition for r in records} == {1} and {error.partition for error in errors} == {0}

    def test_a_paused_partition_raises_nothing_until_it_is_resumed(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, value_deserializer=to_int)
        drain(consumer)
        consumer.pause(FLIGHTS)
        assert drain(consumer) == ([], [])
        consumer.resume(FLIGHTS)

        assert drain(consumer)[1]

    def test_poll_batches_returns_the_raw_record(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, value_deserializer=to_int)
        drain(consumer)
        values = []
        for _ in range(5):
            for batch in consumer.poll_batches(20):
                values += batch.columns.values

        assert values[0] == b"bad" and len(values) == 300 - BAD

    def test_an_error_that_passes_loses_nothing(self, cluster: FakeCluster) -> None:
        is_down = [True]

        def schema_from_registry(topic: str, value: bytes) -> bytes:
            if is_down[0] and value == b"42":
                raise ConnectionError("the registry does not answer")
            return value

        consumer = reader_on(cluster, value_deserializer=schema_from_registry)
        records, errors = drain(consumer)
        assert len(records) == 42 and errors
        is_down[0] = False
        consumer.seek(FLIGHTS, errors[-1].offset)

        assert [r.offset for r in read(consumer, 258)] == list(range(42, 300))

    def test_an_interrupted_deserializer_loses_nothing(self, cluster: FakeCluster) -> None:
        was_interrupted = []

        def interrupted_once(topic: str, value: bytes) -> bytes:
            if value == b"142" and not was_interrupted:
                was_interrupted.append(True)
                raise KeyboardInterrupt
            return value

        consumer = reader_on(cluster, value_deserializer=interrupted_once)
        records = []
        with pytest.raises(KeyboardInterrupt):
            while True:
                records += consumer.poll(20)
        while len(records) < 300:
            records += consumer.poll(20)

        assert [record.offset for record in records] == list(range(300))


class TestCommitting:
    """300 records in 3 batches, one of them unreadable, in a group."""

    def committed_after(self, cluster: FakeCluster, end: str, protocol: str) -> int:
        party = Party(cluster, auto_commit_interval_ms=0, group_protocol=protocol)
        alone = party.join("alone", deserializer=to_int)
        records, _ = drain(alone.consumer, 60)
        assert [record.offset for record in records] == list(range(BAD))
        match end:
            case "commit":
                alone.consumer.commit()
            case "close":
                alone.consumer.close()
            case "rebalance":
                party.join("other").poll(100)
                drain(alone.consumer, 100)
        return cluster.groups.committed("g")["flights", 0]

    @pytest.mark.parametrize("protocol", ["classic", "consumer", "managed"])
    @pytest.mark.parametrize("end", ["automatically", "commit", "close", "rebalance"])
    def test_nothing_is_committed_past_the_record(
        self, cluster: FakeCluster, end: str, protocol: str
    ) -> None:
        assert self.committed_after(cluster, end, protocol) == BAD


class TestSkipping:
    def test_only_the_unreadable_record_is_left_out(self, cluster: FakeCluster) -> None:
        events: list[Event] = []
        consumer = reader_on(
            cluster, {"deserialization.errors": "skip"}, value_deserializer=to_int, on_event=events.append
        )
        records, errors = drain(consumer)

        assert [r.offset for r in records] == [n for n in range(300) if n != BAD] and errors == []
        (skipped,) = (event for event in events if isinstance(event, RecordSkipped))
        assert (skipped.topic, skipped.partition, skipped.offset) == ("flights", 0, BAD)
        assert isinstance(skipped.error, RecordDeserializationError) and skipped.error.value == b"bad"
        assert consumer.feedback().records_skipped == 1

    def test_a_batch_of_unreadable_records_is_passed(self, cluster: FakeCluster) -> None:
        consumer = reader_on(
            cluster, {"deserialization.errors": "skip"}, key_deserializer=lambda topic, key: 1 / 0
        )

        assert drain(consumer) == ([], []) and consumer.position(FLIGHTS) == 300
        assert consumer.feedback().records_skipped == 300


class TestDeadLetters:
    def test_the_callback_gets_the_record_before_any_record_after_it_is_returned(
        self, cluster: FakeCluster
    ) -> None:
        letters: list[RecordDeserializationError] = []
        events: list[Event] = []
        consumer = reader_on(
            cluster,
            {"deserialization.errors": "dead-letter"},
            value_deserializer=to_int,
            dead_letter=letters.append,
            on_event=events.append,
        )
        records, errors = drain(consumer)

        assert [r.offset for r in records] == [n for n in range(300) if n != BAD] and errors == []
        assert [(letter.offset, letter.value) for letter in letters] == [(BAD, b"bad")]
        assert consumer.feedback().records_dead_lettered == 1
        assert [e.offset for e in events if isinstance(e, RecordDeadLettered)] == [BAD]

    def test_a_record_whose_dead_letter_fails_is_neither_passed_nor_lost(self, cluster: FakeCluster) -> None:
        tries: list[int] = []

        def fails_twice(error: RecordDeserializationError) -> None:
            tries.append(error.offset)
            if len(tries) < 3:
                raise TimeoutError("no acknowledgement")

        consumer = reader_on(
            cluster,
            {"deserialization.errors": "dead-letter"},
            value_deserializer=to_int,
            dead_letter=fails_twice,
        )
        records, errors = drain(consumer, 40)

        assert [error.offset for error in errors] == [BAD, BAD] and tries == [BAD] * 3
        assert isinstance(errors[0].dead_letter_error, TimeoutError)
        assert "no acknowledgement" in str(errors[0]) and isinstance(errors[0].__cause__, ValueError)
        assert [r.offset for r in records] == [n for n in range(300) if n != BAD]

    def test_a_dead_letter_topic_gets_the_raw_record_with_headers_that_say_why_and_where_from(
        self, cluster: FakeCluster
    ) -> None:
        (letters,) = cluster.add_topic("letters")
        producer = ImmediateProducer(
            {"bootstrap.servers": cluster.bootstrap}, network=cluster.network(), is_threaded=False
        )
        consumer = reader_on(
            cluster,
            {"deserialization.errors": "dead-letter"},
            value_deserializer=to_int,
            dead_letter=DeadLetterTopic(producer, "letters"),
        )
        records, errors = drain(consumer)

        assert len(records) == 299 and errors == []
        (letter,) = letters.records()
        headers = {key: value.decode() for key, value in letter.headers if value is not None}
        assert (letter.key, letter.value, letter.timestamp) == (b"k150", b"bad", BAD * 1000)
        assert headers == {
            "__holdfast.errors.topic": "flights",
            "__holdfast.errors.partition": "0",
            "__holdfast.errors.offset": "150",
            "__holdfast.errors.part": "value",
            "__holdfast.errors.exception": "ValueError",
            "__holdfast.errors.message": "invalid literal for int() with base 10: b'bad'",
        }

    def test_the_property_and_the_callback_need_each_other(self, cluster: FakeCluster) -> None:
        with pytest.raises(ConfigError, match="needs the argument dead_letter"):
            reader_on(cluster, {"deserialization.errors": "dead-letter"})
        with pytest.raises(ConfigError, match=r"set deserialization\.errors=dead-letter"):
            reader_on(cluster, dead_letter=print)
