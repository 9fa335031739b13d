"""Our own clients and command line against a real broker process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_log.clients.admin import (
    EARLIEST,
    LATEST,
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import ConsumerRecord, Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import (
    CorruptMessageError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration.programs import run_module

RECORDS = 20_000
WAIT_MS = 300_000


def value_of(number: int) -> bytes:
    """Values of mixed sizes; each contains its number."""
    return b"%07d" % number + bytes(number * 7 % 400)


@pytest.fixture
def bootstrap(cluster: Cluster) -> str:
    cluster.start(1)
    return cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        yield admin


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        more = consumer.poll(60_000)
        assert more, f"only {len(records)} of {count} records arrived"
        records += more
    return records


def test_produced_records_are_consumed_with_every_codec(bootstrap: str, admin: Admin) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        admin.create_topics([NewTopic(codec, 3)])
        with Producer({"bootstrap.servers": bootstrap, "compression.type": codec}) as producer:
            responses = [
                producer.send(Message(codec, b"key-%d" % (n % 50), value_of(n), headers=[("n", b"%d" % n)]))
                for n in range(RECORDS)
            ]
        assert [response.error for response in responses if response.error is not None] == []
        with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            consumer.add_topic(codec)
            records = read(consumer, RECORDS)
        assert sorted(record.value for record in records) == [value_of(n) for n in range(RECORDS)]
        where = {(r.partition, r.offset): r.value for r in records}
        assert all(where[r.partition, r.offset] == value_of(n) for n, r in enumerate(responses))
        for partition in range(3):
            values = [r.value for r in records if r.partition == partition]
            assert values == sorted(values), "order within a partition"


def test_offsets_are_found_by_time_sought_and_deleted(bootstrap: str, admin: Admin) -> None:
    admin.create_topics([NewTopic("flights", 1)])
    flights = TopicPartition("flights", 0)
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}) as producer:
        for n in range(100):
            producer.send(Message("flights", value=b"%d" % n, timestamp=1_000_000 + n * 1000))
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "none"}) as consumer:
        consumer.add_topic(*flights)
        assert consumer.offsets_for_times({flights: 1_049_500})[flights] == (50, 1_050_000, 0)
        consumer.seek(flights, 42)
        assert read(consumer, 58)[0].offset == 42
        assert admin.delete_records({flights: 30}) == {flights: 30}
        assert admin.list_offsets({flights: EARLIEST})[flights].offset == 30
        assert admin.list_offsets({flights: LATEST})[flights].offset == 100
        consumer.seek(flights, 3)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(60_000)


def test_topics_are_created_extended_configured_and_deleted(admin: Admin) -> None:
    admin.create_topics([NewTopic("flights", 2, configs={"retention.ms": "60000"})])
    with pytest.raises(TopicExistsError, match="topic flights"):
        admin.create_topics([NewTopic("flights", 2)])
    with pytest.raises(InvalidTopicError):
        admin.create_topics([NewTopic("no/such/name", 1)])
    admin.create_partitions({"flights": 4})
    (described,) = admin.describe_topics(["flights"])
    assert len(described.partitions) == 4

    resource = ConfigResource(ResourceType.TOPIC, "flights")
    admin.alter_configs(
        {
            resource: [
                ConfigChange("segment.bytes", "1048576"),
                ConfigChange("retention.ms", None, ConfigOperation.DELETE),
            ]
        }
    )
    entries = {entry.name: entry for entry in admin.describe_configs([resource])[resource]}
    assert entries["segment.bytes"].value == "1048576" and not entries["segment.bytes"].is_default
    assert entries["retention.ms"].is_default

    admin.delete_topics(["flights"])
    assert "flights" not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["flights"])


def test_the_cluster_its_log_directories_and_producers_are_described(bootstrap: str, admin: Admin) -> None:
    admin.create_topics([NewTopic("flights", 2)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(Message("flights", value=b"v", partition=1)).result(60_000)
    cluster = admin.describe_cluster()
    assert cluster.controller is not None and [node.id for node in cluster.nodes] == [1]
    sizes = {r.partition: r.size_bytes for each in admin.describe_log_dirs() for r in each.replicas}
    assert sizes[TopicPartition("flights", 0)] == 0 < sizes[TopicPartition("flights", 1)]
    (remembered,) = admin.describe_producers([TopicPartition("flights", 1)])[TopicPartition("flights", 1)]
    assert remembered.last_sequence == 0


def test_a_killed_and_restarted_broker_loses_no_record(cluster: Cluster) -> None:
    (broker,) = cluster.start(1)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic("flights", 3)])
    patient = {"retry.backoff.ms": 20, "delivery.timeout.ms": WAIT_MS}
    with Producer({"bootstrap.servers": cluster.bootstrap, **patient}) as producer:
        responses = []
        for n in range(RECORDS):
            responses.append(producer.send(Message("flights", value=value_of(n), partition=n % 3)))
            if n == RECORDS // 2:
                broker.kill()
                broker.start()
        assert producer.flush(WAIT_MS)
    assert [response.error for response in responses if response.error is not None] == []
    with Consumer({"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("flights")
        records = read(consumer, RECORDS)
        assert consumer.poll(500) == []
    for partition in range(3):
        values = [r.value for r in records if r.partition == partition]
        assert values == [value_of(n) for n in range(partition, RECORDS, 3)]


class TestCommandLine:
    @staticmethod
    def run(tool: str, *arguments: str, text: str = "", status: int = 0) -> str:
        answer = run_module(f"holdfast_log.clients.tools.{tool}", *arguments, text=text)
        assert answer.returncode == status, answer.stderr
        assert "Traceback" not in answer.stderr
        return answer.stdout + answer.stderr if status else answer.stdout

    def test_the_topics_tool_creates_lists_alters_describes_and_deletes(self, bootstrap: str) -> None:
        server = ("--bootstrap-server", bootstrap)
        create = ("--create", "--topic", "flights", "--partitions", "2", "--config", "retention.ms=60000")
        assert self.run("topics", *server, *create) == "Created topic flights.\n"
        assert "flights" in self.run("topics", *server, *create, status=1)
        assert self.run("topics", *server, *create, "--if-not-exists") == ""
        assert self.run("topics", *server, "--list") == "flights\n"
        self.run("topics", *server, "--alter", "--topic", "flights", "--partitions", "3")
        lines = self.run("topics", *server, "--describe", "--topic", "flights").splitlines()
        assert lines[0].startswith("Topic: flights\tTopicId: ")
        assert lines[0].endswith("\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=60000")
        assert lines[1] == "\tTopic: flights\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1"
        assert self.run("topics", *server, "--delete", "--topic", "flights") == ""
        assert "there is no topic flights" in self.run(
            "topics", *server, "--describe", "--topic", "flights", status=1
        )

    def test_the_console_tools_write_and_read_keyed_records(self, bootstrap: str) -> None:
        server = ("--bootstrap-server", bootstrap, "--topic", "flights")
        self.run("topics", *server, "--create", "--partitions", "1")
        keyed = (
            "--property",
            "parse.key=true",
            "--property",
            "key.separator=:",
            "--compression-codec",
            "zstd",
        )
        self.run("console_producer", *server, *keyed, text="UA:one\nAA:two\nDL:three\n")
        shown = (
            "--property",
            "print.key=true",
            "--property",
            "print.offset=true",
            "--property",
            "print.partition=true",
        )
        output = self.run("console_consumer", *server, "--from-beginning", "--max-messages", "3", *shown)
        assert output == (
            "Partition:0\tOffset:0\tUA\tone\nPartition:0\tOffset:1\tAA\ttwo\nPartition:0\tOffset:2\tDL\tthree\n"
        )
        rest = ("--partition", "0", "--offset", "2", "--max-messages", "1")
        assert self.run("console_consumer", *server, *rest) == "three\n"
        assert '"value": "three"' in self.run("console_consumer", *server, *rest, "--formatter", "json")
        assert "no key separator" in self.run("console_producer", *server, *keyed, text="x\n", status=1)

    def test_an_unreachable_broker_is_named_with_the_reason(self, tmp_path: Path) -> None:
        impatient = tmp_path / "impatient.properties"
        impatient.write_text("default.api.timeout.ms=1000\n")
        server = ("--bootstrap-server", "127.0.0.1:1", "--command-config", str(impatient))
        said = self.run("topics", *server, "--list", status=1)
        assert "127.0.0.1:1: cannot connect: Connection refused" in said and "--bootstrap-server" in said


def test_a_batch_that_the_disk_has_changed_is_passed_over(cluster: Cluster) -> None:
    (broker,) = cluster.start(1)
    address = {"bootstrap.servers": cluster.bootstrap}
    with Admin(address) as admin:
        admin.create_topics([NewTopic("damaged", 1, 1)])
    with Producer(address) as producer:
        for value in (b"first", b"second", b"third"):
            producer.send(Message("damaged", value=value)).result()
    (path,) = (path for directory in broker.log_dirs for path in directory.glob("damaged-0/*.log"))
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"second"))
        file.write(b"S")  # In the page cache, where no broker looks at the checksums again.
    reading = {**address, "auto.offset.reset": "earliest"}

    with Consumer({**reading, "on.corrupt.batch": "skip"}) as consumer:
        consumer.add_topic("damaged")
        values = [record.value for record in read(consumer, 2)]
        assert (values, consumer.feedback().batches_skipped) == ([b"first", b"third"], 1)
    with Consumer(reading) as consumer, pytest.raises(CorruptMessageError, match="batch at offset 1"):
        consumer.add_topic("damaged")
        read(consumer, 2)
