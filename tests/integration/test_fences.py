"""Fences with real brokers and ZooKeeper: pools write and read for an owner while brokers are killed."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import BrokerError, ErrorCode, OwnershipFencedError, ProducerFencedError
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic

LEDGER = TopicPartition("ledger", 0)
WAIT_MS = 60_000
SESSION_MS = 120_000


def lease_on(bootstrap: str, access: Access = Access.WRITE, generation: int = 1) -> Lease:
    return Lease(
        {"bootstrap.servers": bootstrap},
        "pool",
        [LEDGER],
        access=access,
        generation=generation,
        session_timeout_ms=SESSION_MS,
    )


def write(producer: Producer, value: str) -> int | None:
    return producer.send(Message(LEDGER.topic, value=value, partition=0)).result(WAIT_MS).offset


def write_on_demand(bootstrap: str, fence: OwnerFence, pipe: Connection) -> None:
    """Another process: write each value that comes through the pipe, and answer the offset or the error."""
    with Producer({"bootstrap.servers": bootstrap}, fence=fence) as producer:
        while (value := pipe.recv()) is not None:
            try:
                pipe.send(write(producer, value))
            except BrokerError as error:
                pipe.send(error.code.name)


def test_other_processes_write_for_the_owner_until_the_next_owner_takes_over(cluster: Cluster) -> None:
    brokers = cluster.start(3, {"default.replication.factor": "3", "min.insync.replicas": "2"})
    create_topic(cluster.bootstrap, LEDGER.topic, replicas=3)
    spawning = multiprocessing.get_context("spawn")
    with lease_on(cluster.bootstrap) as owner:
        lines = []
        for _ in range(2):
            here, there = spawning.Pipe()
            arguments = (cluster.bootstrap, owner.fence(), there)
            process = spawning.Process(target=write_on_demand, args=arguments, daemon=True)
            process.start()
            lines.append((here, process))

        def written(number: int, value: str) -> int | str:
            pipe = lines[number][0]
            pipe.send(value)
            assert pipe.poll(WAIT_MS / 1000)
            answer: int | str = pipe.recv()
            return answer

        assert [written(0, "a"), written(1, "b"), written(0, "c")] == [0, 1, 2]
        with Producer({"bootstrap.servers": cluster.bootstrap}) as stranger:
            with pytest.raises(BrokerError) as refused:
                write(stranger, "stranger")
            assert refused.value.code is ErrorCode.POLICY_VIOLATION
        for number, broker in enumerate(brokers):
            cluster.lose(broker)
            assert written(number % 2, f"after {number}") == 3 + number
            cluster.make_whole()

        with lease_on(cluster.bootstrap, generation=1) as successor:
            assert successor.fence_offset(LEDGER) == 6
            assert [written(0, "late"), written(1, "late")] == ["PRODUCER_FENCED"] * 2
            fence = successor.fence()
            with Producer({"bootstrap.servers": cluster.bootstrap}, fence=fence) as producer:
                assert write(producer, "d") == 6
    for pipe, process in lines:
        pipe.send(None)
        process.join(WAIT_MS / 1000)
        assert process.exitcode == 0
    values = [b"a", b"b", b"c", b"after 0", b"after 1", b"after 2", b"d"]
    assert consume(cluster.bootstrap, LEDGER.topic, 7) == values
    for broker in brokers:
        assert not any(
            secret in broker.log_path.read_bytes() for secret in (fence.secret.hex().encode(), fence.secret)
        )


def test_another_process_reads_for_the_reader_until_the_next_one_takes_over(cluster: Cluster) -> None:
    cluster.start(1)
    create_topic(cluster.bootstrap, LEDGER.topic, config={"single.reader": "required"})
    properties = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}
    with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
        assert write(producer, "a") == 0
        with (
            lease_on(cluster.bootstrap, Access.READ) as owner,
            Consumer(properties, fence=owner.fence()) as consumer,
        ):
            consumer.add_topic(*LEDGER)
            assert [record.value for record in consumer.poll(WAIT_MS)] == [b"a"]
            with lease_on(cluster.bootstrap, Access.READ, generation=1) as successor:
                write(producer, "b")
                with pytest.raises(OwnershipFencedError):
                    consumer.poll(WAIT_MS)
                with Consumer(properties, fence=successor.fence()) as next_consumer:
                    next_consumer.add_topic(*LEDGER)
                    read: list[bytes | None] = []
                    while len(read) < 2:
                        read += [record.value for record in next_consumer.poll(WAIT_MS)]
                    assert read == [b"a", b"b"]


def test_a_released_or_forcibly_ended_lease_ends_its_fence(cluster: Cluster) -> None:
    cluster.start(1)
    create_topic(cluster.bootstrap, LEDGER.topic)
    with lease_on(cluster.bootstrap) as released:
        fence = released.fence()
    with Producer({"bootstrap.servers": cluster.bootstrap}, fence=fence) as producer:
        with pytest.raises(ProducerFencedError):
            write(producer, "late")
        with pytest.raises(ProducerFencedError):
            write(producer, "later")
    with (
        lease_on(cluster.bootstrap) as ended,
        Admin({"bootstrap.servers": cluster.bootstrap}) as admin,
        Producer({"bootstrap.servers": cluster.bootstrap}, fence=ended.fence()) as producer,
    ):
        assert write(producer, "a") == 0
        admin.force_release("pool", LEDGER)
        with pytest.raises(ProducerFencedError):
            write(producer, "late")


def test_a_guessed_secret_writes_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    create_topic(cluster.bootstrap, LEDGER.topic)
    with lease_on(cluster.bootstrap) as owner:
        guessed = OwnerFence(owner.fence().tokens, bytes(16))
        producer = Producer({"bootstrap.servers": cluster.bootstrap}, fence=guessed)
        with producer, pytest.raises(BrokerError) as refused:
            write(producer, "stranger")
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "lacks the secret" in str(refused.value)
