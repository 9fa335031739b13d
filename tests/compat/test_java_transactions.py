"""Transactions of Kafka's Java producer, whose epoch rises with each where transaction.version is 2. Those of
librdkafka, which names their partitions beforehand, go on beside them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import KRAFT_VERSION, VERSION
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.integration.clients import consume
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

kafka = pytest.importorskip("confluent_kafka")

COUNT = 20
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
READ_COMMITTED = {"isolation.level": "read_committed"}
WAIT_S = 120


def described(port: int, transactional_id: str) -> Any:
    with RawSocket(port) as client:
        answer = client.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
    (found,) = answer.transaction_states
    return found


@pytest.mark.parametrize(
    ("client", "level", "epoch"), [(KRAFT_VERSION, 2, COUNT), (KRAFT_VERSION, 1, 0), (VERSION, 2, 0)]
)
def test_a_java_producer_uses_the_version_of_transactions_that_is_announced(
    cluster: Cluster, tmp_path: Path, client: str, level: int, epoch: int
) -> None:
    command = driver_or_skip(tmp_path, "Transactions", client)
    (broker,) = cluster.start(1, {**SETTINGS, "transaction.version": str(level)})
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("t", 2, 1)])
    beside = kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": "beside"})
    beside.init_transactions(WAIT_S)
    driver = subprocess.Popen(
        [*command, broker.address, "java", "t", str(COUNT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for number in range(3):
            beside.begin_transaction()
            beside.produce("t", f"beside {number}".encode(), partition=0)
            (beside.abort_transaction if number == 1 else beside.commit_transaction)(WAIT_S)
        printed, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 0, printed[-3000:]
    assert printed.splitlines()[-1] == "done"

    until(lambda: described(broker.port, "java").transaction_state.startswith("Complete"))
    assert described(broker.port, "java").producer_epoch == epoch
    assert described(broker.port, "beside").producer_epoch == 0
    committed = [b"value %d" % number for number in range(COUNT) if number % 3 != 2]
    for partition, expected in enumerate([[*committed, b"beside 0", b"beside 2"], committed]):
        found = consume(broker.address, "t", len(expected), partition, **READ_COMMITTED)
        assert sorted(found) == sorted(expected)
    consumer = kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    (position,) = consumer.committed([kafka.TopicPartition("t", 0)], WAIT_S)
    consumer.close()
    assert position.offset == max(number for number in range(COUNT) if number % 3 != 2)
