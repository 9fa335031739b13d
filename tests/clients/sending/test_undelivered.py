"""Messages that fail and that nobody looks at: `flush`, `close` and the end of a block say so."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.errors import (
    ClosedError,
    RecordTooLargeError,
    UndeliveredError,
    UnsupportedRequestError,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.conditions import FEATURE
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import (
    AuthorizationError,
    ErrorCode,
    OffsetMismatchError,
    UnknownTopicOrPartitionError,
)
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights", 3)
    return cluster


def producer_on(cluster: FakeCluster, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **properties}
    return Producer(given, network=cluster, rng=random.Random(1), is_threaded=False)


def refuse_next(cluster: FakeCluster) -> None:
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class TestSummary:
    def test_flush_raises_once_with_counts_by_partition_and_cause(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        refuse_next(cluster)
        for number in range(5):
            producer.send(Message("flights", value="v", partition=number % 2))

        with pytest.raises(UndeliveredError) as caught:
            producer.flush()

        losses = [(loss.topic, loss.partition, loss.count) for loss in caught.value.losses]
        assert (caught.value.count, sorted(losses)) == (5, [("flights", 0, 3), ("flights", 1, 2)])
        assert str(caught.value).startswith(
            "5 messages were not delivered: 3 to flights-0: AuthorizationError: TOPIC_AUTHORIZATION_FAILED"
        )
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert producer.flush()
        producer.close()

    def test_a_block_that_ends_normally_raises(self, cluster: FakeCluster) -> None:
        with pytest.raises(UndeliveredError, match="1 message was not delivered"):  # noqa: SIM117
            with producer_on(cluster) as producer:
                refuse_next(cluster)
                producer.send(Message("flights", value="v"))

    def test_a_block_that_ends_with_an_exception_keeps_it_and_gets_a_note(self, cluster: FakeCluster) -> None:
        with pytest.raises(ZeroDivisionError) as caught:  # noqa: SIM117
            with producer_on(cluster) as producer:
                refuse_next(cluster)
                producer.send(Message("flights", value="v"))
                _ = 1 / 0
        (note,) = caught.value.__notes__
        assert note.startswith("1 message was not delivered: 1 to flights")

    def test_messages_refused_before_they_were_queued_count(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, **{"max.request.size": 1024})
        producer.send(Message("flights", value=bytes(2000)))
        producer.send_many("flights", [bytes(2000), b"small"])
        with pytest.raises(UndeliveredError) as caught:
            producer.flush()
        assert caught.value.count == 2
        assert isinstance(caught.value.losses[0].error, RecordTooLargeError)

    def test_many_partitions_make_a_short_message(self, cluster: FakeCluster) -> None:
        cluster.add_topic("wide", 20)
        producer = producer_on(cluster)
        refuse_next(cluster)
        for number in range(20):
            producer.send(Message("wide", value="v", partition=number))
        with pytest.raises(UndeliveredError, match="and 15 more partitions or causes") as caught:
            producer.flush()
        assert len(caught.value.losses) == 20

    def test_messages_that_a_close_cuts_off_are_reported(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].stop()
        producer = producer_on(cluster)
        producer.send_many("flights", ["1", "2", "3"])
        with pytest.raises(UndeliveredError) as caught:
            producer.close(100)
        assert caught.value.count == 3 and isinstance(caught.value.losses[0].error, ClosedError)
        assert cluster.time_ms < 1000


def look_by_result(response: SendResponse) -> None:
    with pytest.raises((AuthorizationError, UnsupportedRequestError)):
        response.result()


async def awaited(response: SendResponse) -> None:
    with pytest.raises((AuthorizationError, UnsupportedRequestError)):
        await response


class TestLookedAt:
    @pytest.mark.parametrize(
        "look",
        [
            lambda response: response.error,
            look_by_result,
            lambda response: asyncio.run(awaited(response)),
            lambda response: response.on_completion(lambda _: None),
        ],
        ids=["error", "result", "await", "late callback"],
    )
    @pytest.mark.parametrize("kind", ["one", "several", "bulk", "conditional"])
    def test_a_response_that_was_looked_at_is_not_reported(
        self, cluster: FakeCluster, look: Callable[[SendResponse], object], kind: str
    ) -> None:
        producer = producer_on(cluster)
        refuse_next(cluster)
        response: SendResponse
        match kind:
            case "one":
                response = producer.send(Message("flights", value="v", partition=0))
            case "several":
                response = producer.send(*[Message("flights", value="v", partition=n) for n in (0, 1, 1)])
            case "bulk":
                response = producer.send_many("flights", ["v"] * 10, partition=0)
            case _:
                response = producer.send_at(0, *[Message("flights", value="v", partition=0)] * 2)
        while not response.done:
            producer.turn(100)

        look(response)

        producer.close()

    def test_a_callback_registered_before_counts(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        refuse_next(cluster)
        errors: list[Exception | None] = []
        producer.send(Message("flights", value="v")).on_completion(lambda done: errors.append(done.error))
        producer.close()
        assert len(errors) == 1

    def test_only_what_was_not_looked_at_is_reported(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        refuse_next(cluster)
        responses = [producer.send(Message("flights", value="v", partition=0)) for _ in range(10)]
        while not responses[0].done:
            producer.turn(100)
        for _ in range(3):
            assert responses[4].error is not None
        with pytest.raises(UndeliveredError) as caught:
            producer.close()
        assert caught.value.count == 9

    def test_a_refused_condition_is_reported_once_for_all_that_were_sent_behind_it(
        self, cluster: FakeCluster
    ) -> None:
        cluster.brokers[1].features[FEATURE] = 1
        with producer_on(cluster) as producer:
            first = producer.send(Message("flights", value="first", partition=0))
            while not first.done:
                producer.turn(100)
            responses = [
                producer.send(Message("flights", value="v", partition=0, offset=offset))
                for offset in range(9)
            ]
            while not responses[0].done:
                producer.turn(100)
            assert isinstance(responses[0].error, OffsetMismatchError)

        with pytest.raises(UndeliveredError, match="1 message was not delivered"):  # noqa: SIM117
            with producer_on(cluster) as producer:
                producer.send(Message("flights", value="v", partition=0, offset=0))

    def test_asking_too_early_does_not_count(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        refuse_next(cluster)
        response = producer.send(Message("flights", value="v"))
        assert response.error is None
        with pytest.raises(UndeliveredError):
            producer.close()


class TestNonsense:
    def test_a_partition_that_the_topic_does_not_have_is_an_error_at_once(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        response = producer.send(Message("flights", value="v", partition=99))
        while not response.done:
            producer.turn(1000)

        assert cluster.time_ms < 1000
        with pytest.raises(UnknownTopicOrPartitionError, match="flights has no partition 99: it has 3"):
            response.result()

    def test_a_partition_that_was_just_added_is_found(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        producer.send(Message("flights", value="v"))
        producer.flush()
        cluster.topics["flights"].append(type(cluster.topics["flights"][0])(1))
        response = producer.send(Message("flights", value="v", partition=3))
        producer.flush()
        assert response.result().partition == 3

    def test_another_partition_is_not_held_up(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        bad = producer.send_many("flights", ["v"] * 3, partition=99)
        good = producer.send(Message("flights", value="v", partition=1))
        while not (bad.done and good.done):
            producer.turn(1000)
        assert bad.failed == 3 and good.error is None

    @pytest.mark.parametrize("topic", [None, b"flights", 5])
    def test_a_topic_that_is_no_text_is_refused(self, cluster: FakeCluster, topic: Any) -> None:
        producer = producer_on(cluster)
        with pytest.raises(TypeError, match=r"topic.* must be a str that is not empty, not"):
            producer.send(Message(topic, value="v"))
        with pytest.raises(TypeError, match=r"topic.* must be a str that is not empty, not"):
            producer.send_many(topic, ["v"])
        with pytest.raises(TypeError, match=r"topic.* must be a str that is not empty, not"):
            producer.send_at(0, Message(topic, value="v", partition=0))
        producer.flush()
        requests = [each for each in cluster.brokers[1].requests if isinstance(each, MetadataRequest)]
        assert all(not each.topics for each in requests)

    def test_an_empty_topic_and_a_negative_partition_are_refused(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        with pytest.raises(ValueError, match="empty"):
            producer.send(Message("", value="v"))
        with pytest.raises(ValueError, match=r"the partition of a message for flights .* int -1"):
            producer.send(Message("flights", value="v", partition=-1))
        with pytest.raises(ValueError, match=r"partition must be .* from 0 on, or None, not int -2"):
            producer.send_many("flights", ["v"], partition=-2)
        with pytest.raises(ValueError, match=r"the partition of a message .* int -3"):
            producer.send(Message("flights", key="k", value="v", partition=-3, expected_version=0))
        with pytest.raises(ValueError, match=r"the partition of a message .* int -4"):
            producer.send(Message("flights", value="v", partition=-4, offset=0))
        producer.flush()
        assert not any(isinstance(each, ProduceRequest) for each in cluster.brokers[1].requests)

    @pytest.mark.parametrize(
        ("header", "why"),
        [
            (("trace", "abc"), r"the value of header 'trace' is bytes or None, not str: encode it first"),
            (("trace", 5), "the value of header 'trace' is bytes or None, not int"),
            ((b"trace", b"abc"), "the name of a header is a str, not bytes b'trace'"),
            ("trace", "a header is a pair of name and value, not str 'trace'"),
        ],
    )
    def test_a_header_of_a_wrong_type_is_named(self, cluster: FakeCluster, header: Any, why: str) -> None:
        producer = producer_on(cluster)
        with pytest.raises(TypeError, match=why):
            producer.send(Message("flights", value="v", headers=[("good", b"1"), header]))
        with pytest.raises(TypeError, match=why):
            producer.send_at(0, Message("flights", value="v", partition=0, headers=[header]))
