"""Logs that Holdfast has compacted: Apache Kafka's tool reads them, Kafka compacts them further, and back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.cluster import Cluster
from tests.compat.apache_kafka import KafkaBroker, class_path
from tests.compat.test_old_logs import (
    CODECS,
    Rows,
    check_by_kafka,
    complaints_about_logs,
    create_topics,
    records_of,
    write,
)
from tests.forked_brokers import ForkedBroker

pytestmark = pytest.mark.timeout(1500)

_TIMEOUT_S = 240.0
_PROPERTIES = {
    "log.segment.bytes": "4000",
    "log.index.interval.bytes": "200",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    class_path()  # Skip before anything is started.
    return tmp_path


def latest(rows: Rows) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    return {key: value for _, key, value in rows}


def compacted(broker: BackgroundBroker, below: int) -> Rows:
    """The records of the compacted topic once there are fewer than `below`."""
    deadline = time.monotonic() + _TIMEOUT_S
    while len(rows := records_of(broker, "latest")) >= below:
        assert time.monotonic() < deadline, f"{len(rows)} records are left"
        time.sleep(0.2)
    return rows


def wholly_compacted(broker: BackgroundBroker) -> Rows:
    """The records of the compacted topic once no key is twice in all segments but the active one: then no
    pass is left that replaces a file while another program reads it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        active = max(int(path.stem) for path in (broker.log_dirs[0] / "latest-0").glob("*.log"))
        rows = records_of(broker, "latest")
        old = [key for offset, key, _ in rows if offset < active]
        if len(old) == len(set(old)):
            return rows
        assert time.monotonic() < deadline, f"{len(rows)} records are left"
        time.sleep(0.2)


def test_a_compacted_log_moves_from_holdfast_to_kafka_and_back(cluster: Cluster, directory: Path) -> None:
    ours = ForkedBroker(
        directory / "1",
        broker_id=1,
        zookeeper_connect=cluster.zookeeper_connect,
        properties=_PROPERTIES,
    )
    kafka = KafkaBroker(
        directory / "1",
        broker_id=1,
        zookeeper_connect=cluster.zookeeper_connect,
        port=ours.port,
        properties={**_PROPERTIES, "log.dirs": ours.properties["log.dirs"]},
    )
    try:
        ours.start()
        ours.wait_ready()
        create_topics(ours)
        for codec in CODECS:
            write(ours, codec, codec)
        written = latest(wholly_compacted(ours))
        assert written == {b"%d" % digit: b"zstd-%d" % (140 + digit) for digit in range(10)}
        check_by_kafka(ours, ".log", ".index", ".timeindex")
        ours.stop()
        check_by_kafka(ours, ".log", ".index", ".timeindex")

        kafka.start()
        kafka.wait_ready()
        assert latest(records_of(kafka, "latest")) == written
        write(kafka, "none", "kafka")
        write(kafka, "lz4", "again")
        written = latest(compacted(kafka, below=300))
        assert written == {b"%d" % digit: b"again-%d" % (140 + digit) for digit in range(10)}
        assert complaints_about_logs(kafka) == []
        kafka.stop()

        ours.start()
        ours.wait_ready()
        assert latest(records_of(ours, "latest")) == written
        write(ours, "none", "once more")
        write(ours, "zstd", "ours")
        # Kafka's tool reports the times of batches that Kafka has emptied. Another pass rewrites these.
        written = latest(compacted(ours, below=300))
        assert written == {b"%d" % digit: b"ours-%d" % (140 + digit) for digit in range(10)}
        ours.stop()
        check_by_kafka(ours, ".log", ".index", ".timeindex")
    finally:
        for broker in (ours, kafka):
            broker.stop()
