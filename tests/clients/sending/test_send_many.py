"""Messages sent in bulk, and batches that a broker refuses as too large."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast_log.clients.errors import BufferFullError, RecordTooLargeError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode, MessageTooLargeError
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle
from tests.clients.test_producer import produce_requests, producer_on, values_in


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, stop)]


def warmed_up(cluster: FakeCluster, properties: dict[str, Any] | None = None, **more: Any) -> Producer:
    """A producer that has the topic's metadata."""
    producer = producer_on(cluster, properties, **more)
    producer.send(Message("flights", value="warm up"))
    assert settle(producer)
    return producer


class TestSendMany:
    def test_all_messages_arrive_in_order_and_the_response_has_their_offsets(
        self, cluster: FakeCluster
    ) -> None:
        producer = warmed_up(cluster, {"batch.size": 4000})
        response = producer.send_many("flights", numbers(0, 25_000), timestamp=77)
        assert not response.done
        assert settle(producer)

        assert values_in(cluster, "flights")[1:] == numbers(0, 25_000)
        assert [offset for offsets in response.offsets for offset in offsets] == list(range(1, 25_001))
        assert response.result() == ("flights", 0, 25_000, 77)
        sizes = [len(batch) for batch in cluster.topics["flights"][0].batches]
        assert max(sizes) <= 4000 and min(sizes[1:-1]) > 2500

    def test_messages_of_an_unknown_topic_wait_for_it(self, cluster: FakeCluster) -> None:
        producer = producer_on(cluster)
        response = producer.send_many("flights", numbers(0, 30_000))
        settle(producer)

        assert values_in(cluster, "flights") == numbers(0, 30_000)
        assert response.offset == 29_999 and sum(map(len, response.offsets)) == 30_000

    def test_small_calls_fill_a_batch_together_and_with_single_messages(self, cluster: FakeCluster) -> None:
        producer = warmed_up(cluster)
        for start in range(0, 100, 10):
            producer.send(Message("flights", value=b"%06d" % start))
            producer.send_many("flights", numbers(start + 1, start + 10))
        settle(producer)

        assert values_in(cluster, "flights")[1:] == numbers(0, 100)
        assert len(cluster.topics["flights"][0].batches) == 2

    def test_equal_keys_go_to_the_partition_that_send_chooses(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 7)
        producer = warmed_up(cluster)
        keys = [f"key {number % 50}" for number in range(500)]
        producer.send_many("flights", [f"{n}" for n in range(500)], keys=keys)
        for number, key in enumerate(keys):
            producer.send(Message("flights", key, f"{number}"))
        settle(producer)

        of_partitions = [
            [record.value for record in part.records() if record.key] for part in cluster.topics["flights"]
        ]
        assert sum(map(len, of_partitions)) == 1000
        for values in of_partitions:
            assert values[: len(values) // 2] == values[len(values) // 2 :]

    def test_batches_without_keys_are_spread_and_a_partition_can_be_named(self) -> None:
        cluster = FakeCluster()
        cluster.add_topic("flights", 3)
        producer = warmed_up(cluster, {"batch.size": 1000})
        producer.send_many("flights", numbers(0, 300))
        settle(producer)
        counts = [part.end_offset for part in cluster.topics["flights"]]
        producer.send_many("flights", numbers(0, 10), partition=2, keys=[b"k"] * 10)
        settle(producer)

        assert sum(counts) == 301 and min(counts) > 50
        assert cluster.topics["flights"][2].end_offset == counts[2] + 10

    def test_values_of_any_kind_by_the_serializers(self, cluster: FakeCluster) -> None:
        producer = warmed_up(cluster, value_serializer=lambda _, value: bytearray(str(value).encode()))
        producer.send_many("flights", (number for number in (1, 2.5, None)))
        settle(producer)

        assert values_in(cluster, "flights")[1:] == [b"1", b"2.5", b"None"]

    def test_nulls_text_and_views_are_taken_as_send_takes_them(self, cluster: FakeCluster) -> None:
        producer = warmed_up(cluster)
        producer.send_many("flights", [None, "é", memoryview(b"view")], keys=[None, "k", None])
        settle(producer)

        records = cluster.topics["flights"][0].records()[1:]
        assert [(r.key, r.value) for r in records] == [(None, None), (b"k", "é".encode()), (None, b"view")]

    def test_arrow_columns_are_taken(self, cluster: FakeCluster) -> None:
        pa = pytest.importorskip("pyarrow")
        producer = warmed_up(cluster)
        producer.send_many("flights", pa.array(["a", None]), keys=pa.chunked_array([[b"1"], [b"2"]]))
        settle(producer)

        assert values_in(cluster, "flights")[1:] == [b"a", None]

    @pytest.mark.parametrize("keys", [[], [b"1"], [b"1"] * 3])
    def test_keys_and_values_must_be_of_equal_number(self, cluster: FakeCluster, keys: list[bytes]) -> None:
        with pytest.raises(ValueError, match="as many keys as values"):
            producer_on(cluster).send_many("flights", [b"a", b"b"], keys=keys)

    def test_no_message_at_all_is_an_error(self, cluster: FakeCluster) -> None:
        with pytest.raises(ValueError, match="no message"):
            producer_on(cluster).send_many("flights", [])

    def test_a_message_that_is_too_large_fails_alone(self, cluster: FakeCluster) -> None:
        producer = warmed_up(cluster, {"max.request.size": 5000, "batch.size": 2000})
        response = producer.send_many("flights", [b"a", bytes(6000), b"b"])
        settle(producer)

        assert isinstance(response.error, RecordTooLargeError)
        assert values_in(cluster, "flights")[1:] == [b"a", b"b"]
        assert response.failed == 1

    def test_memory_is_bounded_and_messages_without_room_fail(self, cluster: FakeCluster) -> None:
        producer = warmed_up(cluster, {"buffer.memory": 100_000, "max.block.ms": 1000})
        cluster.brokers[1].is_silent = True
        response = producer.send_many("flights", [bytes(100)] * 5000)

        assert producer._engine.queues.used <= 100_000
        assert isinstance(response.error, BufferFullError)
        cluster.brokers[1].start()
        settle(producer)
        failed = response.failed
        assert 0 < failed < 5000 and len(values_in(cluster, "flights")) == 5001 - failed
        assert producer._engine.queues.used == 0

    def test_without_retries_every_lost_message_fails(self, cluster: FakeCluster) -> None:
        producer = warmed_up(cluster, {"retries": 0, "batch.size": 1000})
        for how in ("cut", ErrorCode.NOT_ENOUGH_REPLICAS, "cut"):
            cluster.brokers[1].fail_next(ProduceRequest, how)
        response = producer.send_many("flights", numbers(0, 1000))
        settle(producer)

        failed = response.failed
        assert failed > 0 and len(values_in(cluster, "flights")) == 1001 - failed

    def test_a_bulk_response_can_be_awaited(self, cluster: FakeCluster) -> None:
        producer = Producer({"bootstrap.servers": "localhost:1", "max.block.ms": 50})

        async def send() -> None:
            await producer.send_many("flights", [b"a"])

        with pytest.raises(Exception, match="flights"):
            asyncio.run(send())
        producer.close()


class TestTooLarge:
    """A broker that accepts only smaller batches than the producer's: they are split, and no message is
    lost."""

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_a_batch_that_is_too_large_is_split(self, cluster: FakeCluster, codec: str) -> None:
        cluster.topics["flights"][0].max_batch_bytes = 1000
        rng = random.Random(1)
        values = [rng.randbytes(100) for _ in range(200)]
        producer = warmed_up(cluster, {"batch.size": 16_384, "compression.type": codec})
        seen: list[int | None] = []
        singles = [producer.send(Message("flights", "k", value, headers=[("h", b"1")])) for value in values]
        for response in singles:
            response.on_completion(lambda done: seen.append(done.offset))
        settle(producer)
        bulk = producer.send_many("flights", values)
        settle(producer)

        assert [response.offset for response in singles] == list(range(1, 201)) == seen
        assert singles[7].result().offset == 8
        assert values_in(cluster, "flights")[1:] == values + values
        assert cluster.topics["flights"][0].records()[1].headers == (("h", b"1"),)
        assert bulk.offset == 400 and bulk.error is None
        assert producer._engine.queues.used == 0

    def test_later_batches_keep_to_the_size_that_the_broker_took(self, cluster: FakeCluster) -> None:
        cluster.topics["flights"][0].max_batch_bytes = 5000
        producer = warmed_up(cluster, {"batch.size": 16_384})
        producer.send_many("flights", [bytes(100)] * 500)
        settle(producer)
        before = len(produce_requests(cluster))
        producer.send_many("flights", [bytes(100)] * 500)
        settle(producer)

        batches = len(produce_requests(cluster)) - before
        assert max(map(len, cluster.topics["flights"][0].batches)) <= 5000
        assert batches <= 500 * 114 / 2000

    def test_a_single_message_that_the_broker_refuses_as_too_large_fails(self, cluster: FakeCluster) -> None:
        cluster.topics["flights"][0].max_batch_bytes = 1000
        producer = warmed_up(cluster)
        responses = [producer.send(Message("flights", value=bytes(size))) for size in (10, 2000, 20)]
        settle(producer)

        assert [response.offset for response in responses] == [1, None, 2]
        assert isinstance(responses[1].error, MessageTooLargeError)

    @pytest.mark.parametrize("idempotent", [True, False])
    def test_order_is_kept_through_faults_and_splits(self, cluster: FakeCluster, idempotent: bool) -> None:
        cluster.topics["flights"][0].max_batch_bytes = 1500
        for round_number in range(20):
            rng = random.Random(round_number)
            partition = cluster.add_topic("flights")[0]
            partition.max_batch_bytes = 1500
            producer = warmed_up(cluster, {"batch.size": 8000, "enable.idempotence": idempotent})
            faults: list[str | ErrorCode] = ["cut", ErrorCode.NOT_ENOUGH_REPLICAS]
            faults += ["cut after"] if idempotent else []
            for number in range(600):
                producer.send(Message("flights", value=b"%06d" % number))
                if rng.random() < 0.02:
                    cluster.brokers[1].fail_next(ProduceRequest, rng.choice(faults))
                if rng.random() < 0.1:
                    producer.turn(1)
            assert settle(producer)

            assert values_in(cluster, "flights")[1:] == numbers(0, 600), round_number
            cluster.brokers[1].faults.clear()
