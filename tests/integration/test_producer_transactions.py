"""Transactions of our own producer and consumer, on real brokers that are killed."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.transactions.transaction import ProducerTransaction
from holdfast_log.protocol.errors import (
    KeyVersionMismatchError,
    OffsetMismatchError,
    OwnershipFencedError,
    ProducerFencedError,
)
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration.programs import finished
from tests.integration.raw_socket import RawSocket
from tests.integration.test_examples import start
from tests.integration.waiting import until

PAGE = Path(__file__).parents[2] / "docs/transactions.md"
WAIT_MS = 120_000
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
ONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
VERSIONS = pytest.mark.parametrize("version", ["1", "2"], ids="transaction.version {}".format)
"""With 2, leaders and group coordinators add to transactions, and each has an epoch of its own."""


def producer_on(cluster: Cluster, name: str = "tx", fence: OwnerFence | None = None) -> Producer:
    given = {
        "bootstrap.servers": cluster.bootstrap,
        "transactional.id": name,
        "max.block.ms": WAIT_MS,
        "transaction.timeout.ms": 5 * WAIT_MS,
    }
    return Producer(given, fence=fence)


def create(cluster: Cluster, *topics: str, replicas: int = 1) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, 2, replicas) for name in topics])


def committed(cluster: Cluster, topic: str, count: int, level: str = "read_committed") -> list[bytes]:
    """The first `count` records of a topic, and any that come within 300 ms afterwards."""
    found: list[bytes] = []
    given = {"auto.offset.reset": "earliest", "isolation.level": level}
    with Consumer({"bootstrap.servers": cluster.bootstrap} | given) as consumer:
        consumer.add_topic(topic)
        while len(found) < count:
            found += [record.value for record in consumer.poll(WAIT_MS)]
        return sorted(found + [record.value for record in consumer.poll(300)])


def coordinator_of(broker: BackgroundBroker, name: str) -> int:
    """The broker that coordinates a transactional id; -1 while none is known."""
    with RawSocket(broker.port) as client:
        answer = client.call(FindCoordinatorRequest(key=name, key_type=1, coordinator_keys=[name]))
    return answer.coordinators[0].node_id if answer.coordinators else answer.node_id


@VERSIONS
def test_commit_abort_exception_and_the_pure_decoder(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    cluster.start(1, ONE | {"transaction.version": version})
    create(cluster, "t")
    with producer_on(cluster) as producer:
        with producer.transaction() as t:
            for number in range(100):
                t.send(Message("t", key=b"%d" % number, value=b"committed"))
        with pytest.raises(ZeroDivisionError), producer.transaction() as t:
            t.send_many("t", [b"aborted"] * 100)
            producer.flush()
            raise ZeroDivisionError
        explicit = producer.transaction()
        explicit.send(Message("t", partition=0, value=b"explicit"))
        explicit.commit()
        explicit = producer.transaction()
        explicit.send(Message("t", partition=0, value=b"aborted"))
        producer.flush()
        explicit.abort()

    expected = [b"committed"] * 100 + [b"explicit"]
    assert committed(cluster, "t", 101) == expected
    assert Counter(committed(cluster, "t", 202, "read_uncommitted"))[b"aborted"] == 101


def test_a_second_producer_fences_the_first(cluster: Cluster) -> None:
    cluster.start(1, ONE)
    create(cluster, "t")
    with producer_on(cluster) as first, producer_on(cluster) as second:
        t = first.transaction()
        t.send(Message("t", partition=0, value=b"first"))
        first.flush()
        with second.transaction() as other:
            other.send(Message("t", partition=0, value=b"second"))
        with pytest.raises(ProducerFencedError):
            t.commit()
    assert committed(cluster, "t", 1) == [b"second"]


@VERSIONS
def test_the_coordinator_is_killed_in_between(cluster: Cluster, version: str) -> None:
    started = cluster.start(3, SETTINGS | {"transaction.version": version})
    brokers = {broker.broker_id: broker for broker in started}
    create(cluster, "t", replicas=3)
    with producer_on(cluster) as producer:
        with producer.transaction() as t:
            t.send(Message("t", partition=0, value=b"before"))
        t = producer.transaction()
        t.send(Message("t", partition=0, value=b"a"), Message("t", partition=1, value=b"b"))
        producer.flush()
        until(lambda: coordinator_of(brokers[min(brokers)], "tx") in brokers)
        coordinator = coordinator_of(brokers[min(brokers)], "tx")
        brokers[coordinator].kill()
        t.send(Message("t", partition=1, value=b"c"))
        t.commit(WAIT_MS)
        with producer.transaction(WAIT_MS) as t:
            t.send(Message("t", partition=0, value=b"after"))
        brokers[coordinator].start()
    assert committed(cluster, "t", 5) == [b"a", b"after", b"b", b"before", b"c"]


def test_a_condition_that_fails_on_one_broker_leaves_nothing_on_another(cluster: Cluster) -> None:
    cluster.start(3, SETTINGS)
    create(cluster, "t", "u")
    with producer_on(cluster) as producer:
        with pytest.raises(OffsetMismatchError) as caught, producer.transaction() as t:
            t.send_many("u", [b"lost"] * 10, partition=0)
            t.send_many("u", [b"lost"] * 10, partition=1)
            t.send_at(5, Message("t", partition=0, value=b"lost"))
        assert caught.value.next_offset == 0
        with producer.transaction() as t:
            t.send(Message("u", partition=0, value=b"u"))
            # The marker of the transaction that was aborted is at offset 0.
            t.send_at(1, Message("t", partition=0, value=b"t"))
    assert (committed(cluster, "t", 1), committed(cluster, "u", 1)) == ([b"t"], [b"u"])


def test_an_owner_that_has_lost_its_partition_cannot_commit_what_it_has_open_there(cluster: Cluster) -> None:
    cluster.start(3, SETTINGS)
    create(cluster, "ledger", "other")
    properties = {"bootstrap.servers": cluster.bootstrap}
    places = [TopicPartition("ledger", 0), TopicPartition("other", 0)]

    def write(t: ProducerTransaction, value: bytes) -> None:
        for topic, partition in places:
            t.send(Message(topic, partition=partition, value=value))

    with (
        Lease(properties, "app", places, generation=1, session_timeout_ms=WAIT_MS) as owner,
        producer_on(cluster, fence=owner.fence()) as producer,
    ):
        with producer.transaction() as t:
            write(t, b"owner")
        lost = producer.transaction()
        write(lost, b"lost")
        producer.flush()
        with Lease(properties, "app", places[:1], generation=1, session_timeout_ms=WAIT_MS) as successor:
            with pytest.raises(OwnershipFencedError):
                lost.commit()
            lost.abort()
            fence = successor.fence()
            with producer_on(cluster, "next", fence=fence) as other, other.transaction() as t:
                t.send(Message("ledger", partition=0, value=b"successor"))
            assert committed(cluster, "ledger", 2) == [b"owner", b"successor"]
            assert committed(cluster, "other", 1) == [b"owner"]


def test_versions_of_keys_count_what_is_open_and_what_was_aborted(cluster: Cluster) -> None:
    """So no change is lost. A writer that is refused reads up to behind the version that it is told."""
    cluster.start(1, ONE)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic("keys", 1, 1, configs={"key.versions": "true"})])

    def expecting(version: int, value: bytes) -> Message:
        return Message("keys", key=b"k", value=value, partition=0, expected_version=version)

    with producer_on(cluster) as producer, producer_on(cluster, "second") as second:
        with producer.transaction() as t:
            first = t.send(expecting(-1, b"1"))
        assert first.offset == 0
        t = producer.transaction()
        mine = t.send(expecting(0, b"2")).result(WAIT_MS)
        again = t.send(expecting(mine.offset, b"3")).result(WAIT_MS)
        with pytest.raises(KeyVersionMismatchError) as while_open, second.transaction() as other:
            other.send(expecting(0, b"lost update"))
        t.abort()
        with pytest.raises(KeyVersionMismatchError) as after_abort, second.transaction() as other:
            other.send(expecting(0, b"still refused"))
        assert (while_open.value.version, after_abort.value.version) == (again.offset, again.offset)
        assert committed(cluster, "keys", 1) == [b"1"], "behind that offset nothing else counts"
        with second.transaction() as other:
            other.send(expecting(again.offset, b"next"))
    assert committed(cluster, "keys", 2) == [b"1", b"next"]


@VERSIONS
def test_requests_are_carried_out_once_by_a_program_that_is_killed(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    """docs/examples/transfers.py is killed in the middle of its work, and started again."""
    cluster.start(1, ONE | {"transaction.version": version})
    create(cluster, "transfers", "accounts")
    count = 2_000
    with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
        for number in range(count):
            producer.send(Message("transfers", value=f"alice bob {number}"))
    read = Consumer({"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"})
    running = start("transfers.py", cluster.bootstrap, "teller")
    try:
        with read:
            read.add_topic("accounts")
            until(lambda: bool(read.poll(1000)))
            running.kill()
            running.wait()
            running = start("transfers.py", cluster.bootstrap, "teller")
            entries = committed(cluster, "accounts", 2 * count)
    finally:
        running.kill()
        running.wait()
    expected = Counter(b"%s%d" % (sign, number) for sign in (b"-", b"+") for number in range(count))
    assert Counter(entries) == expected
    place = [TopicPartition("transfers", number) for number in (0, 1)]
    with Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "tellers"}) as consumer:

        def stored() -> int:
            found = consumer.committed(place, WAIT_MS)
            return sum(each.offset for each in found.values() if each is not None)

        # The marker of the last offsets may be written after those of records.
        until(lambda: stored() == count)


def test_two_threads_write_in_one_transaction(cluster: Cluster) -> None:
    cluster.start(1, ONE)
    create(cluster, "t")

    def write(value: bytes) -> None:
        for _ in range(1_000):
            producer.send(Message("t", value=value))

    with producer_on(cluster) as producer:
        with producer.transaction():
            threads = [threading.Thread(target=write, args=(value,)) for value in (b"1", b"2")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert producer.feedback().records_acknowledged == 2_000
    assert committed(cluster, "t", 2_000) == [b"1"] * 1_000 + [b"2"] * 1_000


def test_the_example_of_the_page_prints_what_it_says(cluster: Cluster) -> None:
    (broker,) = cluster.start(1, ONE)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    done = finished([sys.executable, "-c", example.replace("localhost:9092", broker.address)])

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "nothing was transferred: not enough money",
        "b'alice' b'-10'",
        "b'bob' b'+10'",
    ]
