"""Kafka's own Java admin client: delegation tokens are refused as by a broker that has none, and who may
alter the cluster may abort a transaction of others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker, free_port
from holdfast_log.clients.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    Admin,
    NewTopic,
    ResourcePattern,
)
from holdfast_log.protocol.acls import CLUSTER_NAME
from holdfast_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(1200)

DISABLED = ["DelegationTokenDisabledException"] * 4
NOT_ALLOWED = ["UnsupportedByAuthenticationException"] * 4
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="of alice" user_operator="of operators";'
)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command that runs the driver. Skips the test before a broker is started if there is no Kafka."""
    return driver_or_skip(tmp_path, "Refusals")


def producers_of(broker: BackgroundBroker, topic: str) -> list[ProducerState]:
    """The producers that the leader of partition 0 knows."""
    named = TopicRequest(name=topic, partition_indexes=[0])
    with RawSocket(broker.port) as client:
        answer = client.call(DescribeProducersRequest(topics=[named]))
    found: list[ProducerState] = answer.topics[0].partitions[0].active_producers
    return found


def test_tokens_are_refused_and_operators_abort(command: list[str], cluster: Cluster, tmp_path: Path) -> None:
    broker = cluster.add()
    port = free_port()
    broker.properties |= {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port},"
            f"INTERNAL://127.0.0.1:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": "acls",
        "super.users": "User:ANONYMOUS",
    }
    broker.start()
    broker.wait_ready()
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
    # The programs below may take minutes on a busy machine: its coordinator does not abort it meanwhile.
    config = {"transactional.id": "hangs", "transaction.timeout.ms": 900_000}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, **config})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce("orders", b"hangs")
    assert producer.flush(120) == 0
    (state,) = producers_of(broker, "orders")
    assert state.current_txn_start_offset == 0
    may_alter = AclEntry("User:operator", "*", AclOperation.ALTER, AclPermission.ALLOW)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_acls(
            [
                AclBinding(ResourcePattern(AclResource.CLUSTER, CLUSTER_NAME), may_alter),
                AclBinding(
                    ResourcePattern(AclResource.TOPIC, "orders"),
                    AclEntry("User:*", "*", AclOperation.DESCRIBE, AclPermission.ALLOW),
                ),
            ]
        )

    def printed(bootstrap: str, *lines: str) -> list[str]:
        path = tmp_path / "client.properties"
        path.write_text("\n".join([f"bootstrap.servers={bootstrap}", *lines]) + "\n")
        done = subprocess.run(
            [*command, str(path), "orders", str(state.producer_id)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line.partition("answer: ") for line in done.stdout.splitlines()]
        return [answer for _, is_answer, answer in lines if is_answer]

    def of_user(user: str, password: str) -> list[str]:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return printed(
            f"127.0.0.1:{port}",
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=PLAIN",
            f'sasl.jaas.config={module} username="{user}" password="{password}";',
        )

    assert of_user("alice", "of alice") == [*DISABLED, "ClusterAuthorizationException"]
    (state,) = producers_of(broker, "orders")
    assert state.current_txn_start_offset == 0
    assert of_user("operator", "of operators") == [*DISABLED, "done"]
    (state,) = producers_of(broker, "orders")
    assert state.current_txn_start_offset == -1
    assert printed(broker.address) == [*NOT_ALLOWED, "done"]
    until(lambda: "Aborted transactions of producer" in broker.log)
