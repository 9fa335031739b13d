"""A coordinator of transactions is killed between its decision and the markers: its successor finishes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.cluster import Cluster
from tests.integration.clients import consume
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

STATE = "__transaction_state"
WAIT_S = 120
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}


def _state_at(broker: BackgroundBroker, transactional_id: str) -> str:
    """What a broker says of a transaction as its coordinator; "" if it is not."""
    with RawSocket(broker.port) as client:
        answer = client.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]))
    (found,) = answer.transaction_states
    return "" if found.error_code else str(found.transaction_state)


def _replicas_of_state(bootstrap: str) -> tuple[int, list[int]]:
    """The leader of the only partition of `__transaction_state`, and its replicas."""
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    found: dict[int, Any] = {}

    def is_led() -> bool:
        """Whether the broker that is asked knows the topic: it may learn of it after the coordinator."""
        found.update(client.list_topics(STATE, WAIT_S).topics[STATE].partitions)
        return 0 in found and found[0].leader >= 0

    until(is_led)
    return found[0].leader, list(found[0].replicas)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_the_next_coordinator_finishes_what_was_decided(cluster: Cluster, is_commit: bool) -> None:
    """A broker that stands still cannot write its marker, so the decision stays without one until the
    coordinator is gone."""
    brokers = {broker.broker_id: broker for broker in cluster.start(3, SETTINGS)}
    config = {"transactional.id": "tx", "transaction.timeout.ms": 600_000}
    producer = kafka.Producer({"bootstrap.servers": cluster.bootstrap} | config)
    producer.init_transactions(WAIT_S)
    leader, replicas = _replicas_of_state(cluster.bootstrap)
    (still,) = set(brokers) - set(replicas)
    successor = next(each for each in replicas if each != leader)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as client:
        places = {"still": still, "moving": successor}
        client.create_topics([NewTopic(name, 1, assignment={0: [place]}) for name, place in places.items()])

    def write(value: bytes) -> None:
        producer.begin_transaction()
        for topic in ("still", "moving"):
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0

    write(b"decided")
    brokers[still].pause()
    end: Any = producer.commit_transaction if is_commit else producer.abort_transaction
    decided = "PrepareCommit" if is_commit else "PrepareAbort"
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(end, WAIT_S)
        try:
            until(lambda: _state_at(brokers[leader], "tx") == decided)
            brokers[leader].kill()
        finally:
            brokers[still].resume()
        until(lambda: _state_at(brokers[successor], "tx") == decided.replace("Prepare", "Complete"))
        ended.result(WAIT_S)

    write(b"next")
    producer.commit_transaction(WAIT_S)
    expected = [b"decided", b"next"] if is_commit else [b"next"]
    for topic in ("still", "moving"):
        found = consume(cluster.bootstrap, topic, len(expected), **{"isolation.level": "read_committed"})
        assert found == expected
