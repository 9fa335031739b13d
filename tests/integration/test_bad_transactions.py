"""A broker answers bad requests of transactions with the protocol's error, and a neighbour's transactions are
undisturbed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.describe_transactions import DescribeTransactionsRequest
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.list_transactions import ListTransactionsRequest
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.test_access_rules import errors_in
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until
from tests.models.transactional import transactional_batch

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
E = ErrorCode


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    (broker,) = cluster_of_module.start(1, SETTINGS)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
    with RawSocket(broker.port) as client:
        # A look-up has the topic of transactions created, and a group that of offsets.
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["first"]))
        until(lambda: init(client, "first").error_code == E.NONE)
        until(lambda: client.call(offsets("first", 0, 0)).error_code != E.COORDINATOR_NOT_AVAILABLE)
    return broker


@pytest.fixture
def client(broker: BackgroundBroker) -> Iterator[RawSocket]:
    """A client, beside a neighbour whose transaction is open meanwhile and goes on afterwards."""
    with RawSocket(broker.port) as neighbour, RawSocket(broker.port) as client:
        producer = init(neighbour, "neighbour")
        name = ("neighbour", producer.producer_id, producer.producer_epoch)
        assert written(neighbour, *name, sequence=0) == E.NONE
        yield client
        assert written(neighbour, *name, sequence=1) == E.NONE
        assert neighbour.call(end(*name)).error_code == E.NONE


def init(client: RawSocket, name: str | None, *, timeout_ms: int = 600_000, **expected: int) -> Any:
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, **expected
    )  # fmt: skip

    def asked() -> InitProducerIdResponse | None:
        response = client.call(request)
        is_busy = response.error_code == E.CONCURRENT_TRANSACTIONS
        return None if is_busy else response

    found = asked()
    while found is None:
        found = asked()
    return found


def produce(name: str | None, producer_id: int, epoch: int, sequence: int = 0) -> ProduceRequest:
    records = bytes(transactional_batch(producer_id=producer_id, epoch=epoch, sequence=sequence))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[data])


def written(client: RawSocket, name: str | None, producer_id: int, epoch: int, sequence: int = 0) -> int:
    """The error of a batch that is sent until the markers of the last transaction have been written."""
    while True:
        response = client.call(produce(name, producer_id, epoch, sequence))
        error: int = response.responses[0].partition_responses[0].error_code
        if error != E.NOT_ENOUGH_REPLICAS:
            return error


def end(name: str, producer_id: int, epoch: int) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)


def partitions(name: str, topic: str, *indexes: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[],
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=123_456,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
    )


def offsets(name: str, producer_id: int, epoch: int) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="g"
    )


def commit(
    name: str, topic: str = "t", producer_id: int = 123_456, **of_member: Any
) -> TxnOffsetCommitRequest:
    wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id="g",
        producer_id=producer_id,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        **of_member,
    )


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 5, E.INVALID_REQUEST),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=0),
            5,
            E.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=-1),
            0,
            E.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=2**31 - 1),
            5,
            E.INVALID_TRANSACTION_TIMEOUT,
        ),
        (partitions("", "t", 0), 3, E.INVALID_REQUEST),
        (partitions("unknown", "t", 0), 3, E.INVALID_PRODUCER_ID_MAPPING),
        (partitions("first", "t", 0), 3, E.INVALID_PRODUCER_ID_MAPPING),
        (partitions("first", "missing", 0), 3, E.UNKNOWN_TOPIC_OR_PARTITION),
        (partitions("first", "t", -1), 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        (offsets("", 1, 0), 4, E.INVALID_REQUEST),
        (offsets("unknown", 1, 0), 4, E.INVALID_PRODUCER_ID_MAPPING),
        (offsets("first", -1, -1), 0, E.INVALID_PRODUCER_ID_MAPPING),
        (end("", 1, 0), 5, E.INVALID_REQUEST),
        (end("unknown", 1, 0), 5, E.INVALID_PRODUCER_ID_MAPPING),
        (end("first", -1, -1), 0, E.INVALID_PRODUCER_ID_MAPPING),
        (commit(""), 5, E.INVALID_REQUEST),
        (commit("unknown"), 5, E.INVALID_PRODUCER_ID_MAPPING),
        (commit("unknown"), 3, E.INVALID_PRODUCER_ID_MAPPING),
        (commit("first", "missing"), 5, E.UNKNOWN_TOPIC_OR_PARTITION),
        (produce("unknown", 123_456, 0), 12, E.INVALID_PRODUCER_ID_MAPPING),
        (produce("unknown", 123_456, 0), 11, E.INVALID_PRODUCER_ID_MAPPING),
        (produce("", 123_456, 0), 12, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (produce(None, 123_456, 0), 12, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (DescribeTransactionsRequest(transactional_ids=[""]), 0, E.INVALID_REQUEST),
    ],
)
def test_a_bad_request_gets_its_error(
    client: RawSocket, request_: Request[Any], version: int, code: ErrorCode
) -> None:
    assert set(errors_in(client.call(request_, version))) - {E.NONE, E.OPERATION_NOT_ATTEMPTED} == {code}


def test_a_producer_of_another_epoch_is_refused(client: RawSocket) -> None:
    old = init(client, "fenced")
    new = init(client, "fenced")
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch + 1)
    late = ("fenced", old.producer_id, old.producer_epoch)
    future = ("fenced", old.producer_id, old.producer_epoch + 9)
    for name in (late, future):
        assert client.call(offsets(*name), 4).error_code == E.PRODUCER_FENCED
        assert client.call(offsets(*name), 1).error_code == E.INVALID_PRODUCER_EPOCH
        assert client.call(end(*name), 5).error_code == E.PRODUCER_FENCED
        assert client.call(end(*name), 1).error_code == E.INVALID_PRODUCER_EPOCH
        assert written(client, *name) == E.INVALID_PRODUCER_EPOCH
    named = {"producer_id": old.producer_id, "producer_epoch": old.producer_epoch + 9}
    assert init(client, "fenced", **named).error_code == E.PRODUCER_FENCED


def test_an_end_without_a_transaction_is_refused(client: RawSocket) -> None:
    producer = init(client, "idle")
    name = ("idle", producer.producer_id, producer.producer_epoch)
    assert client.call(end(*name), 4).error_code == E.INVALID_TXN_STATE
    assert client.call(end(*name), 5).error_code == E.INVALID_TXN_STATE


def test_a_member_of_another_generation_commits_no_offsets(client: RawSocket) -> None:
    producer = init(client, "offsets")
    request = commit("offsets", producer_id=producer.producer_id, generation_id=7, member_id="nobody")
    request.producer_epoch = producer.producer_epoch
    found = set(errors_in(client.call(request, 5)))
    assert found <= {E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION}
    assert found


def test_a_filter_of_unknown_states_is_told(client: RawSocket) -> None:
    answer = client.call(ListTransactionsRequest(state_filters=["Broken", "Empty"], producer_id_filters=[-5]))
    assert (answer.error_code, answer.unknown_state_filters) == (E.NONE, ["Broken"])
    assert answer.transaction_states == []
