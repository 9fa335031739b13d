"""A broker is killed with kill -9 under a heavy produce load: no acknowledged record is lost, none is
duplicated.

A kill leaves the page cache intact, so this holds with and without `flush.before.ack`. At the end, the test
also checks that offsets are dense and that every index equals one rebuilt from the batches.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.settings import LogSettings
from tests.forked_brokers import ForkedBroker

KILLS = int(os.environ.get("HOLDFAST_KILLS", "5"))  # for each value of flush.before.ack
PARTITIONS = 2
SEGMENT_BYTES = 1 << 20  # small, so that kills hit rolls too


class Load:
    """An idempotent producer that sends until it is stopped, and the offsets acknowledged to it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 300_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "queue.buffering.max.messages": 20_000,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[int, dict[int, int]] = {p: {} for p in range(PARTITIONS)}
        self.acknowledged_count = 0
        self.sent = 0
        self.errors: list[KafkaError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._progress = threading.Condition()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        value = bytes(500)
        while not self._stop.is_set():
            number = self.sent
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    b"%d" % number,
                    number % PARTITIONS,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition, offset, key = message.partition(), message.offset(), message.key()
        assert partition is not None
        assert offset is not None
        assert isinstance(key, bytes)
        self.acknowledged[partition][int(key)] = offset
        with self._progress:
            self.acknowledged_count += 1
            self._progress.notify_all()

    def wait_for_more(self, count: int, timeout_s: float = 240) -> None:
        """Return once `count` more records have been acknowledged."""
        with self._progress:
            wanted = self.acknowledged_count + count
            assert self._progress.wait_for(lambda: self.acknowledged_count >= wanted, timeout_s), (
                f"only {self.acknowledged_count} of {wanted} records were acknowledged"
            )

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def read_all(bootstrap: str, topic: str, partition: int) -> Iterator[tuple[int, int]]:
    """Yields (offset, number) of every record in the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while True:
        for message in consumer.consume(10_000, timeout=0.5):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                consumer.close()
                return
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert isinstance(key, bytes)
            yield offset, int(key)


def rebuild_indexes(log: Path, directory: Path) -> Path:
    """Copy a segment to `directory`, and build its indexes from its batches. Returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(log, directory)
    segment = Segment(OpenFiles(OsDisk()), str(directory), int(log.stem), LogSettings())
    segment.size = log.stat().st_size
    segment.indexes.begin_empty()
    segment.rebuild_indexes()
    return directory


@pytest.mark.timeout(900 + 60 * KILLS)
@pytest.mark.parametrize("flush_before_ack", ["false", "true"])
def test_no_acknowledged_record_is_lost_or_duplicated_by_kills(
    flush_before_ack: str, zookeeper: str, tmp_path: Path
) -> None:
    broker = ForkedBroker(
        tmp_path,
        broker_id=1,
        zookeeper_connect=zookeeper,
        properties={
            "flush.before.ack": flush_before_ack,
            "log.segment.bytes": str(SEGMENT_BYTES),
        },
    )
    broker.start()
    broker.wait_ready()
    topic = "heavy"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(120)
    load = Load(broker.address, topic)
    rng = random.Random(flush_before_ack)
    load.start()
    try:
        for _ in range(KILLS):
            load.wait_for_more(rng.randint(200, 4000))
            # So that the kill hits any moment of a batch, an append, a roll or a flush.
            time.sleep(rng.random() * 0.02)
            broker.kill()
            broker.start()
            broker.wait_ready()
        load.wait_for_more(1000)
    finally:
        load.stop()

    assert load.errors == []
    for partition in range(PARTITIONS):
        stored = list(read_all(broker.address, topic, partition))
        numbers = [number for _, number in stored]
        assert [offset for offset, _ in stored] == list(range(len(stored))), "offsets are dense"
        assert numbers == list(range(partition, load.sent, PARTITIONS)), "each record once, in order"
        at = dict(zip(numbers, (offset for offset, _ in stored), strict=True))
        assert load.acknowledged[partition] == at, "each where its acknowledgement said"
    broker.stop()
    logs = [path for directory in broker.log_dirs for path in directory.glob(f"{topic}-*/*.log")]
    assert len(logs) > PARTITIONS, "kills were to hit rolls too"
    for log in logs:
        rebuilt = rebuild_indexes(log, tmp_path / "rebuilt" / log.parent.name)
        for path in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
            assert path.read_bytes() == (rebuilt / path.name).read_bytes(), path
