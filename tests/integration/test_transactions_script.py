"""transactions.sh against two brokers: it shows transactions and producers."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration import scripts
from tests.integration.waiting import until

kafka = pytest.importorskip("confluent_kafka")

WAIT_S = 120
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
AT = TopicPartition("journal", 0)


run = functools.partial(scripts.run, "transactions")
rows = functools.partial(scripts.rows, "transactions")


def begin(bootstrap: str, transactional_id: str, value: bytes) -> Any:
    """A producer with an open transaction in the journal."""
    producer = kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("journal", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


def test_transactions_are_shown(cluster: Cluster) -> None:
    cluster.start(2, SETTINGS)
    bootstrap = cluster.bootstrap
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("journal", 1, assignment={0: [1, 2]}), NewTopic("single", 1, 1)])
        assert admin.list_transactions() == []
        with pytest.raises(BrokerError) as unknown:
            admin.describe_transactions(["payments"])
        assert unknown.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        begin(bootstrap, "done", b"first").commit_transaction(WAIT_S)
        # The producer is answered before all partitions have their markers.
        until(lambda: admin.list_transactions(["CompleteCommit"]) != [])
        producer = begin(bootstrap, "payments", b"second")

        (done, payments) = admin.list_transactions()
        assert (done.transactional_id, done.state) == ("done", "CompleteCommit")
        assert (payments.transactional_id, payments.state) == ("payments", "Ongoing")
        assert admin.list_transactions(["Ongoing"]) == [payments]
        assert admin.list_transactions(producer_ids=[done.producer_id]) == [done]
        assert admin.list_transactions(open_longer_than_ms=600_000) == []
        assert admin.list_transactions(open_longer_than_ms=0) == [payments], "the other has ended"
        described = admin.describe_transactions(["payments"])["payments"]
        assert (described.coordinator, described.partitions) == (payments.coordinator, (AT,))
        (replica,) = admin.describe_topics(["single"])[0].partitions[0].replicas
        with pytest.raises(BrokerError, match="single-0 on broker"):
            admin.describe_producers([TopicPartition("single", 0)], broker=3 - replica)

    (row,) = rows(bootstrap, "describe", "--transactional-id", "payments")
    assert row["topicPartitions"] == ["journal-0"]
    assert row["transactionState"] == "Ongoing"
    assert row["transactionTimeoutMs"] == 600_000
    assert row["transactionDurationMs"] >= 0
    titles, line = run(bootstrap, "describe", "--transactional-id", "done").stdout.splitlines()
    ended = dict(zip(titles.split(), line.split(), strict=False))
    assert ended["TransactionState"] == "CompleteCommit"
    assert ended["CurrentTransactionStartTimeMs"] == ended["TransactionDurationMs"] == "None"
    titles, *lines = run(bootstrap, "list").stdout.splitlines()
    assert titles.split("\t")[0].strip() == "TransactionalId"
    assert [line.split()[0] for line in lines] == ["done", "payments"]
    offsets = [
        {
            each["producerId"]: each["currentTransactionStartOffset"]
            for each in rows(
                bootstrap, "describe-producers", "--topic", "journal", "--partition", "0", *which
            )
        }
        for which in ((), ("--broker-id", "1"), ("--broker-id", "2"))
    ]
    assert offsets == [{done.producer_id: None, payments.producer_id: 2}] * 3
    assert rows(bootstrap, "find-hanging", "--broker-id", "2", "--max-transaction-timeout", "0") == []
    missing = run(bootstrap, "describe", "--transactional-id", "nobody")
    assert missing.returncode == 1
    assert "transactional id nobody" in missing.stderr

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        (fenced,) = admin.fence_producers(["payments"]).values()
        assert fenced.producer_id == payments.producer_id
        assert admin.describe_transactions(["payments"])["payments"].partitions == ()
    with pytest.raises(kafka.KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() == kafka.KafkaError._FENCED


def test_wrong_usage_exits_with_status_2_and_the_reason() -> None:
    for arguments, complaint in (
        (("find-hanging",), "--topic or --broker-id is needed"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "--partition needs --topic"),
        (("abort", "--topic", "t", "--partition", "0"), "one of --start-offset or --producer-id"),
        (
            ("abort", "--topic", "t", "--partition", "0", "--producer-id", "5"),
            "--producer-id needs --producer-epoch",
        ),
        (("describe",), "--transactional-id"),
    ):
        done = run("localhost:1", *arguments)
        assert done.returncode == 2
        assert complaint in done.stderr
