"""The producer, run turn by turn against brokers in memory: batching, order, retries and closing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast_log.clients.errors import (
    BufferFullError,
    ClosedError,
    ConfigError,
    DeliveryTimeoutError,
    RecordTooLargeError,
    RequestTimeoutError,
    UndeliveredError,
    UnsupportedRequestError,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import (
    BrokerError,
    ErrorCode,
    MessageTooLargeError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle


def producer_on(cluster: FakeCluster, properties: dict[str, Any] | None = None, **more: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **(properties or {})}
    return Producer(given, network=cluster, rng=random.Random(1), is_threaded=False, **more)


def write(producer: Producer, value: Any) -> SendResponse:
    """Send a message to "flights", and wait for its response."""
    response = producer.send(Message("flights", value=value))
    settle(producer)
    return response


def values_in(cluster: FakeCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.topics[topic][partition].records()]


def produce_requests(cluster: FakeCluster, node: int = 1) -> list[ProduceRequest]:
    return [r for r in cluster.brokers[node].requests if isinstance(r, ProduceRequest)]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


class TestSending:
    def test_a_message_arrives_and_its_response_has_the_offset(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        first = producer.send(Message("flights", "UA", "one", headers=[("h", b"1")], timestamp=77))
        second = producer.send(Message("flights", "UA", "two"))

        assert not first.done and first.offset is None and first.error is None
        assert settle(producer)

        assert (first.done, first.partition, first.offset, first.timestamp) == (True, 0, 0, 77)
        assert second.result() == ("flights", 0, 1, 1_700_000_000_000)
        (record, _) = cluster.topics["flights"][0].records()
        assert (record.key, record.value, record.headers) == (b"UA", b"one", (("h", b"1"),))

    def test_waiting_for_a_result_runs_the_loop_of_a_producer_without_a_thread(
        self, cluster: FakeCluster
    ) -> None:
        producer = producer_on(cluster, {"linger.ms": 100})

        assert producer.send(Message("flights", value="one")).result().offset == 0
        two = producer.send(Message("flights", value="two"), Message("flights", value="three"))
        assert two.result().offset == 2
        assert producer.send_many("flights", ["four"]).result().offset == 3
        cluster.brokers[1].is_silent = True
        started_ms = cluster.time_ms
        with pytest.raises(RequestTimeoutError, match="not known after timeout_ms=700"):
            producer.send(Message("flights", value="six")).result(timeout_ms=700)
        assert cluster.time_ms - started_ms == 700

    def test_several_messages_have_one_response(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        seen = []
        response = producer.send(*[Message("flights", value=str(n)) for n in range(3)])
        response.on_completion(seen.append)

        settle(producer)

        assert response.done and response.offset == 2 and seen == [response]

    def test_a_callback_is_called_once_even_if_registered_late(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        response = producer.send(Message("flights", value="v"))
        offsets: list[int | None] = []
        response.on_completion(lambda done: offsets.append(done.offset))
        settle(producer)
        response.on_completion(lambda done: offsets.append(done.offset))

        assert offsets == [0, 0]

    def test_a_callback_that_raises_does_not_stop_the_sending(
        self, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        producer = producer_on(cluster)
        producer.send(Message("flights", value="1")).on_completion(lambda _: 1 / 0)
        settle(producer)
        second = producer.send(Message("flights", value="2"))

        assert settle(producer) and second.offset == 1
        assert "ZeroDivisionError" in capsys.readouterr().err

    def test_messages_that_have_lingered_are_sent_together(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"linger.ms": 100})
        write(producer, "warm up")
        for n in range(5):
            producer.send(Message("flights", value=str(n)))
        start_ms = cluster.time_ms
        while cluster.topics["flights"][0].end_offset < 6:
            producer.turn(1000)

        assert cluster.time_ms - start_ms == 100
        assert len(cluster.topics["flights"][0].batches) == 2

    def test_a_full_batch_does_not_linger(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"linger.ms": 60_000, "batch.size": 1000})
        for _ in range(20):
            producer.send(Message("flights", value=bytes(100)))
        while cluster.topics["flights"][0].end_offset < 8:
            producer.turn(1000)

        assert cluster.time_ms < 1000

    def test_batches_are_no_larger_than_batch_size(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"batch.size": 1000})
        for _ in range(50):
            producer.send(Message("flights", value=bytes(100)))
        write(producer, bytes(5000))

        sizes = [len(batch) for batch in cluster.topics["flights"][0].batches]
        assert max(sizes[:-1]) <= 1000 and sizes[-1] > 5000

    @pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
    def test_batches_are_compressed(self, cluster: FakeCluster, codec: str) -> None:
        producer = producer_on(cluster, {"compression.type": codec})
        write(producer, bytes(5000))

        assert len(cluster.topics["flights"][0].batches[0]) < 1000
        assert values_in(cluster, "flights") == [bytes(5000)]

    def test_acks_0_counts_as_acknowledged_when_sent(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"acks": "0"})
        response = producer.send(Message("flights", value="v"))

        assert settle(producer)
        assert response.error is None and response.offset == -1
        assert values_in(cluster, "flights") == [b"v"]


class TestPlacing:
    def test_equal_keys_go_to_one_partition(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 5)
        producer = producer_on(cluster)
        early = [producer.send(Message("flights", f"key-{n % 20}", str(n))) for n in range(100)]
        settle(producer)  # These precede the topic's metadata; the next ones follow it.
        late = [producer.send(Message("flights", f"key-{n % 20}", str(n))) for n in range(100)]
        settle(producer)

        homes = [{r.partition for r in (early + late)[n::20]} for n in range(20)]
        assert all(len(home) == 1 for home in homes)
        assert len({partition for home in homes for partition in home}) > 1

    def test_batches_without_keys_are_spread_over_the_partitions(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 3)
        producer = producer_on(cluster, {"batch.size": 1000})
        for _ in range(300):
            producer.send(Message("flights", value=bytes(100)))
        settle(producer)

        counts = [partition.end_offset for partition in cluster.topics["flights"]]
        assert sum(counts) == 300 and min(counts) > 50

    def test_messages_without_a_key_avoid_partitions_without_a_leader(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 3)[1].leader = -1
        producer = producer_on(cluster, {"batch.size": 1000})
        for _ in range(100):
            producer.send(Message("flights", value=bytes(100)))

        assert settle(producer, 5000)
        assert cluster.topics["flights"][1].end_offset == 0

    def test_a_topic_with_one_partition_keeps_the_order_of_all_messages(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"batch.size": 300})
        for n in range(200):
            producer.send(Message("flights", "key" if n % 3 else None, str(n)))
        settle(producer)

        assert values_in(cluster, "flights") == [str(n).encode() for n in range(200)]

    def test_a_partition_can_be_named(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 3)
        producer = producer_on(cluster)
        response = producer.send(Message("flights", "key", "v", partition=2))
        settle(producer)

        assert response.partition == 2 and values_in(cluster, "flights", 2) == [b"v"]

    def test_a_partitioner_that_raises_fails_its_message_only(self, cluster: FakeCluster) -> None:
        def moody(topic: str, key: bytes | None, count: int) -> int:
            if key == b"bad":
                raise LookupError("no such place")
            return 0

        producer = producer_on(cluster, partitioner=moody)
        good, bad = producer.send(Message("flights", "good")), producer.send(Message("flights", "bad"))
        settle(producer)

        assert good.error is None and isinstance(bad.error, LookupError)


class TestRetries:
    @pytest.mark.parametrize("how", [ErrorCode.NOT_LEADER_OR_FOLLOWER, "cut", "cut after"])
    @pytest.mark.parametrize("idempotent", [True, False])
    def test_order_is_kept_and_nothing_is_lost(
        self, cluster: FakeCluster, how: str | ErrorCode, idempotent: bool
    ) -> None:
        producer = producer_on(cluster, {"batch.size": 500, "enable.idempotence": idempotent})
        write(producer, "warm up")
        responses = [producer.send(Message("flights", value=f"{n:03}" * 30)) for n in range(40)]
        cluster.brokers[1].fail_next(ProduceRequest, how)
        settle(producer)

        values = [value[:3] for value in values_in(cluster, "flights") if value and len(value) > 10]
        if idempotent or how != "cut after":
            assert values == [b"%03d" % n for n in range(40)]
            assert [r.offset for r in responses] == list(range(1, 41))
        else:
            # Without idempotence, a batch whose answer was lost is written twice, but in order.
            assert len(values) > 40 and list(dict.fromkeys(values)) == [b"%03d" % n for n in range(40)]
        assert all(response.error is None for response in responses)

    def test_a_first_batch_that_fails_is_still_written_first(self, cluster: FakeCluster) -> None:
        """A broker accepts any first sequence of a producer that it does not know (KIP-360)."""
        producer = producer_on(cluster, {"batch.size": 500, "linger.ms": 0})
        cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_ENOUGH_REPLICAS)
        responses = [producer.send(Message("flights", value=f"{n:03}" * 30)) for n in range(40)]
        settle(producer)

        assert [value[:3] for value in values_in(cluster, "flights") if value] == [
            b"%03d" % n for n in range(40)
        ]
        assert [response.offset for response in responses] == list(range(40))

    def test_random_faults_leave_every_record_once_and_in_order(self) -> None:
        for seed in range(30):
            rng = random.Random(seed)
            cluster = FakeCluster(3)
            partitions = cluster.add_topic("flights", 4)
            producer = producer_on(cluster, {"batch.size": 400, "retry.backoff.ms": 10})
            responses = []
            for n in range(300):
                responses.append(producer.send(Message("flights", value=b"%04d" % n * 10, partition=n % 4)))
                if rng.random() < 0.1:
                    broker = cluster.brokers[rng.randint(1, 3)]
                    how = rng.choice(["cut", "cut after", ErrorCode.NOT_ENOUGH_REPLICAS])
                    broker.fail_next(ProduceRequest, how)
                if rng.random() < 0.02:
                    moved = rng.choice(partitions)
                    moved.leader, moved.leader_epoch = rng.randint(1, 3), moved.leader_epoch + 1
                if rng.random() < 0.3:
                    producer.turn(rng.randint(0, 20))
            assert settle(producer, 600_000), seed
            for index, partition in enumerate(partitions):
                values = [record.value for record in partition.records()]
                assert values == [b"%04d" % n * 10 for n in range(index, 300, 4)], seed
            assert [r.error for r in responses if r.error is not None] == [], seed

    def test_a_new_leader_is_found(self) -> None:
        cluster = FakeCluster(2)
        (partition,) = cluster.add_topic("flights", 1)
        producer = producer_on(cluster)
        write(producer, "1")
        cluster.brokers[1].stop()
        partition.leader, partition.leader_epoch = 2, 1
        response = producer.send(Message("flights", value="2"))

        assert settle(producer) and response.offset == 1

    def test_a_request_to_a_silent_broker_times_out_and_is_sent_again(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"request.timeout.ms": 1000})
        write(producer, "1")
        cluster.brokers[1].is_silent = True
        cluster.at(cluster.time_ms + 3000, cluster.brokers[1].start)
        response = producer.send(Message("flights", value="2"))

        assert settle(producer) and response.offset == 1
        assert values_in(cluster, "flights") == [b"1", b"2"]

    def test_without_retries_a_lost_batch_fails(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"retries": 0})
        write(producer, "1")
        cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.NOT_ENOUGH_REPLICAS)
        lost = write(producer, "2")
        kept = write(producer, "3")

        assert isinstance(lost.error, BrokerError) and lost.error.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert kept.offset == 1 and values_in(cluster, "flights") == [b"1", b"3"]


class TestGivingUp:
    def test_after_a_refused_batch_the_next_ones_are_written(self, cluster: FakeCluster) -> None:
        """The refused batch leaves a gap in the sequence numbers, which only a new epoch closes."""
        producer = producer_on(cluster, {"batch.size": 500, "linger.ms": 0})
        write(producer, "0")
        cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE)
        responses = [producer.send(Message("flights", value=b"%d" % n * 400)) for n in range(1, 6)]
        settle(producer)

        assert isinstance(responses[0].error, MessageTooLargeError)
        assert [r.error for r in responses[1:]] == [None] * 4
        assert [value[:1] for value in values_in(cluster, "flights") if value] == [
            b"0",
            b"2",
            b"3",
            b"4",
            b"5",
        ]

    def test_a_batch_past_its_delivery_timeout_fails_and_later_ones_are_sent(
        self, cluster: FakeCluster
    ) -> None:
        producer = producer_on(cluster, {"delivery.timeout.ms": 5000, "request.timeout.ms": 1000})
        write(producer, "0")
        cluster.brokers[1].is_silent = True
        late = producer.send(Message("flights", value="late"))
        cluster.at(cluster.time_ms + 7000, cluster.brokers[1].start)
        settle(producer)
        next_one = write(producer, "next")

        assert isinstance(late.error, DeliveryTimeoutError) and "delivery.timeout.ms=5000" in str(late.error)
        assert next_one.error is None and values_in(cluster, "flights")[-1] == b"next"

    def test_memory_is_given_back(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"buffer.memory": 20_000, "max.block.ms": 100})
        for n in range(500):
            assert producer.send(Message("flights", value=str(n))).error is None
        settle(producer)

        assert producer._engine.queues.used == 0

    def test_a_dead_cluster_fills_the_buffer_and_no_more(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"buffer.memory": 20_000, "max.block.ms": 100})
        write(producer, "the topic is known")
        cluster.brokers[1].stop()
        responses = [producer.send(Message("flights", value=bytes(100))) for _ in range(200)]

        full = [response for response in responses if isinstance(response.error, BufferFullError)]
        assert 100 < len(full) < 200
        assert producer._engine.queues.used <= 20_000

    def test_a_message_to_an_unknown_topic_fails_in_its_response(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"max.block.ms": 2000})
        response = producer.send(Message("fligths", value="v"))
        settle(producer)

        assert isinstance(response.error, UnknownTopicOrPartitionError)
        assert cluster.time_ms < 4000

    def test_a_message_to_a_forbidden_topic_fails_at_once(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        write(producer, "v")
        cluster.brokers[1].fail_next(MetadataRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        response = producer.send(Message("secrets", value="v"))
        start_ms = cluster.time_ms
        settle(producer)

        assert isinstance(response.error, BrokerError) and cluster.time_ms - start_ms < 1000
        assert response.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def test_a_message_that_is_too_large_fails_in_its_response(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"max.request.size": 2000})
        assert isinstance(producer.send(Message("flights", value=bytes(3000))).error, RecordTooLargeError)

    def test_a_fenced_producer_writes_nothing_any_more(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.PRODUCER_FENCED)
        response = write(producer, "v")

        assert isinstance(response.error, ProducerFencedError)
        with pytest.raises(ProducerFencedError):
            producer.send(Message("flights", value="v"))

    def test_a_broker_without_idempotence_is_named_in_the_error(self, cluster: FakeCluster) -> None:
        del cluster.brokers[1].versions[22]
        producer = producer_on(cluster)
        response = write(producer, "v")

        assert isinstance(response.error, UnsupportedRequestError)
        assert "enable.idempotence=false" in str(response.error)

    def test_a_failed_request_for_a_producer_id_is_repeated(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].fail_next(InitProducerIdRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        cluster.brokers[1].fail_next(InitProducerIdRequest, "cut")
        producer = producer_on(cluster)
        response = producer.send(Message("flights", value="v"))

        assert settle(producer) and response.offset == 0


class TestPipelining:
    def test_requests_are_pipelined(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"batch.size": 300, "linger.ms": 0})
        write(producer, "warm up")
        before = len(produce_requests(cluster))
        cluster.brokers[1].is_silent = True
        for _ in range(30):
            producer.send(Message("flights", value=bytes(200)))
        for _ in range(10):
            producer.turn(1)

        assert producer._engine.sender._departures.requests_in_flight[1] == 5
        cluster.brokers[1].start()
        assert settle(producer)
        assert len(produce_requests(cluster)) - before == 30

    def test_without_idempotence_a_partition_has_one_batch_under_way(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 2)
        producer = producer_on(cluster, {"batch.size": 300, "linger.ms": 0, "enable.idempotence": False})
        producer.send(Message("flights", value="warm up", partition=0))
        settle(producer)
        cluster.brokers[1].is_silent = True
        for n in range(20):
            producer.send(Message("flights", value=bytes(200), partition=n % 2))
        for _ in range(10):
            producer.turn(1)

        queues = list(producer._engine.queues.busy)
        assert [len(queue.in_flight) for queue in queues] == [1, 1]

    def test_a_throttled_producer_waits(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        cluster.brokers[1].throttle_time_ms = 2000
        write(producer, "1")
        start_ms = cluster.time_ms
        producer.send(Message("flights", value="2"))

        assert settle(producer) and cluster.time_ms - start_ms >= 2000


class TestClosing:
    def test_close_sends_what_waits(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster, {"linger.ms": 60_000})
        response = producer.send(Message("flights", value="v"))
        producer.close()

        assert response.offset == 0
        with pytest.raises(ClosedError):
            producer.send(Message("flights", value="v"))

    def test_a_message_not_sent_when_close_times_out_fails(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].stop()
        producer = producer_on(cluster)
        responses = [producer.send(Message("flights", key, "v")) for key in ("a", None)]
        with pytest.raises(UndeliveredError, match="2 to flights: ClosedError"):
            producer.close(1000)

        assert all(isinstance(response.error, ClosedError) for response in responses)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"enable.idempotence": True, "acks": "1"}, "acks=1 is not possible with enable.idempotence"),
        ({"compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"lingerms": 5}, r"lingerms is not a property of a producer; did you mean linger\.ms\?"),
        ({"acks": "2"}, "one of all, -1, 0, 1"),
    ],
)
def test_invalid_properties_are_refused(cluster: FakeCluster, properties: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        producer_on(cluster, properties)


def test_lower_acks_turn_idempotence_off(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, {"acks": "1"})
    assert producer.settings["enable.idempotence"] is False


def test_values_of_other_types_need_a_serializer(cluster: FakeCluster) -> None:
    with pytest.raises(TypeError, match="value_serializer"):
        producer_on(cluster).send(Message("flights", value=5))
    producer = producer_on(cluster, value_serializer=lambda topic, value: b"%d" % value)
    write(producer, 5)
    assert values_in(cluster, "flights") == [b"5"]
