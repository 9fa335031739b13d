"""A stranger takes producer ids without end and writes with each of them to all partitions, beside idempotent
producers of librdkafka whose broker stands still at times: they try again, and nothing is written twice.

    HOLDFAST_PRODUCER_IDS=1500 python -m pytest -s tests/integration/test_many_producer_ids.py

has the stranger take so many ids, with the default limits, and prints what the broker's memory grew by.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic
from tests.integration.raw_socket import RawSocket
from tests.models.batches import batch

CAMPAIGN = int(os.environ.get("HOLDFAST_PRODUCER_IDS", "0"))
PARTITIONS = 100 if CAMPAIGN else 20
STRANGERS_IDS = CAMPAIGN or 200
PAUSES = 2
PAUSE_S = 3.0
STRANGER, HONEST = "127.0.0.2", "127.0.0.3"
TOPIC = "t"


class Stranger:
    """Takes an id, writes a batch with it to every partition, and takes the next one."""

    def __init__(self, port: int) -> None:
        self._socket = RawSocket(port, STRANGER)

    def write(self, ids: int) -> None:
        for _ in range(ids):
            given = self._socket.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1))
            assert given.error_code == ErrorCode.NONE
            records = batch(b"s", producer_id=given.producer_id, producer_epoch=0, base_sequence=0)
            assert set(written(self._socket, records, range(PARTITIONS)).values()) == {ErrorCode.NONE}

    def close(self) -> None:
        self._socket.close()


def written(connection: RawSocket, records: bytes, partitions: Any) -> dict[int, int]:
    """Write a batch to some partitions. Returns the error code of each."""
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    (topic,) = connection.call(request).responses
    return {row.index: row.error_code for row in topic.partition_responses}


class Honest:
    """An idempotent producer of librdkafka that writes numbers until it is stopped. It gives up on an answer
    early, so that it sends again what a paused broker has received."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "socket.timeout.ms": 1500,
                "request.timeout.ms": 1000,
                "message.timeout.ms": 240_000,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self.sent: list[bytes] = []
        self.errors: list[Any] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            value = b"honest %d" % len(self.sent)
            self._producer.produce(
                TOPIC, value, partition=len(self.sent) % PARTITIONS, on_delivery=self._delivered
            )
            self.sent.append(value)
            self._producer.poll(0.001)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(240) == 0


def values_of(bootstrap: str) -> list[bytes]:
    """All values of the topic, without those of the stranger."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bounds"})
    values: list[bytes] = []
    for index in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=60)
        values += consume(bootstrap, TOPIC, end, index)
    consumer.close()
    return [value for value in values if value != b"s"]


def resident_bytes(broker: BackgroundBroker) -> int:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_stranger_with_ids_without_end_makes_no_honest_batch_count_twice(cluster: Cluster) -> None:
    limits = {} if CAMPAIGN else {"producer.ids.max": "2000", "producer.ids.max.per.source": "1000"}
    (broker,) = cluster.start(1, limits)
    create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
    with RawSocket(broker.port, HONEST) as connection:
        given = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1))
        records = batch(b"once", producer_id=given.producer_id, producer_epoch=0, base_sequence=0)
        assert set(written(connection, records, range(PARTITIONS)).values()) == {ErrorCode.NONE}

        before = resident_bytes(broker)
        honest = Honest(cluster.bootstrap)
        stranger = Stranger(broker.port)
        for _ in range(PAUSES):
            stranger.write(STRANGERS_IDS // (2 * PAUSES))
            broker.pause()
            time.sleep(PAUSE_S)
            broker.resume()
            stranger.write(STRANGERS_IDS // (2 * PAUSES))
        stranger.close()
        honest.finish()
        grown = resident_bytes(broker) - before
        print(f"{STRANGERS_IDS} ids in {PARTITIONS} partitions: {grown / 2**20:.0f} MiB more memory")

        # The honest producer's batch is still known: sent again, it is acknowledged and not written.
        assert set(written(connection, records, range(PARTITIONS)).values()) == {ErrorCode.NONE}
    assert not honest.errors
    values = values_of(cluster.bootstrap)
    assert values.count(b"once") == PARTITIONS
    mine = [value for value in values if value != b"once"]
    assert sorted(mine) == sorted(honest.sent)
    assert grown < 256 << 20
