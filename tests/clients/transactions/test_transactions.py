"""Transactions of producers, on a fake cluster whose coordinator is the broker's own shard."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_log.clients.errors import (
    CommitUnknownError,
    ConfigError,
    RecordTooLargeError,
    RequestTimeoutError,
    TransactionAbortedError,
    TransactionStateError,
)
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.conditions import APPEND_IDS_FEATURE, FEATURE, KEY_VERSIONS_FEATURE
from holdfast_log.protocol.errors import (
    AuthorizationError,
    BrokerError,
    ErrorCode,
    KeyVersionMismatchError,
    ProducerFencedError,
)
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.testing import FakeCluster

ID = {"transactional.id": "transfers"}


def values(cluster: FakeCluster, topic: str = "accounts") -> list[bytes]:
    """What readers of committed records have, once markers are written."""
    cluster.advance(1)
    return [record.value for record in cluster.records(topic, only_committed=True)]


def send_two(producer: Producer) -> None:
    with producer.transaction() as t:
        t.send(Message("accounts", partition=0, value=b"-10"), Message("accounts", partition=1, value=b"+10"))


def test_a_block_commits_all_that_was_sent_in_it(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        with producer.transaction() as t:
            responses = [t.send(Message("accounts", partition=n, value=b"%d" % n)) for n in (0, 1)]
            producer.flush()
            assert values(cluster) == [], "nothing is committed yet"
        assert [response.offset for response in responses] == [0, 0]
        send_two(producer)
        cluster.advance(1)
        with producer.transaction():
            began_ms = cluster.time_ms
        assert cluster.time_ms == began_ms, "an empty one ends at once"

    assert sorted(values(cluster)) == [b"+10", b"-10", b"0", b"1"]
    assert cluster.count_requests("EndTxn") == 2, "an empty transaction asks for nothing"


def test_an_exception_aborts_and_goes_on(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"lost"))
            producer.flush()
            waiting = t.send(Message("accounts", partition=1, value=b"never sent"))
            raise ZeroDivisionError
        assert isinstance(waiting.error, TransactionAbortedError)
        send_two(producer)

    assert [record.value for record in cluster.records("accounts")] == [b"lost", b"-10", b"+10"]
    assert values(cluster) == [b"-10", b"+10"]


def test_begin_commit_and_abort_without_a_block(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        first = producer.transaction()
        producer.send(Message("accounts", partition=0, value=b"1"))
        first.commit()
        second = producer.transaction()
        second.send(Message("accounts", partition=0, value=b"2"))
        producer.flush()
        second.abort()
        for call in (first.commit, first.abort, second.commit, second.abort):
            with pytest.raises(TransactionStateError, match="has ended: begin another one"):
                call()
    assert values(cluster) == [b"1"]


def test_the_end_in_a_block_is_not_repeated_at_its_end(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        with producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"1"))
            t.commit()
        with producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"2"))
            t.abort()
        with pytest.raises(ZeroDivisionError), producer.transaction() as t:
            t.commit()
            raise ZeroDivisionError
    assert values(cluster) == [b"1"]


def test_messages_outside_of_a_transaction_are_refused(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        with pytest.raises(TransactionStateError, match=r"sends between transaction\(\) and commit\(\)"):
            producer.send(Message("accounts", partition=0, value=b"early"))
        with producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"1"))
        with pytest.raises(TransactionStateError):
            t.send(Message("accounts", partition=0, value=b"late"))
        with pytest.raises(TransactionStateError):
            producer.send_many("accounts", [b"late"])
        with (
            producer.transaction() as t,
            pytest.raises(TransactionStateError, match="has a transaction open"),
        ):
            producer.transaction()
    assert values(cluster) == [b"1"]


def test_a_producer_without_a_transactional_id_has_no_transactions(cluster: FakeCluster) -> None:
    with cluster.producer() as producer, pytest.raises(ConfigError, match=r"transactional\.id"):
        producer.transaction()


@pytest.mark.parametrize("lowered", [{"acks": 1}, {"enable.idempotence": False}, {"transactional.id": ""}])
def test_a_transactional_id_needs_idempotence(cluster: FakeCluster, lowered: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        cluster.producer(ID | lowered)


def test_closing_aborts_what_is_open(cluster: FakeCluster) -> None:
    producer = cluster.producer(ID)
    t = producer.transaction()
    t.send(Message("accounts", partition=0, value=b"1"))
    producer.flush()

    producer.close()

    assert values(cluster) == []
    assert cluster.topics["accounts"][0].producers.first_open_transaction is None


# Fencing ----------------------------------------------------------------------------------------------


def test_a_second_producer_fences_the_first_and_aborts_what_it_has_open(cluster: FakeCluster) -> None:
    first, second = cluster.producer(ID), cluster.producer(ID)
    t = first.transaction()
    t.send(Message("accounts", partition=0, value=b"first"))
    first.flush()

    send_two(second)

    with pytest.raises(ProducerFencedError, match="another producer has begun"):
        t.commit()
    with pytest.raises(ProducerFencedError):
        first.transaction()
    with pytest.raises(ProducerFencedError):
        first.send(Message("accounts", partition=0, value=b"late"))
    assert values(cluster) == [b"-10", b"+10"]
    first.close()
    second.close()


def test_a_fenced_producer_cannot_write(cluster: FakeCluster) -> None:
    first, second = cluster.producer(ID), cluster.producer(ID)
    with pytest.raises(ProducerFencedError), first.transaction() as t:
        t.send(Message("accounts", partition=0, value=b"1"))
        first.flush()
        second.init_transactions()
        t.send(Message("accounts", partition=0, value=b"2"), Message("accounts", partition=1, value=b"3"))
    assert values(cluster) == []


def test_a_transaction_that_is_open_for_too_long_is_aborted(
    cluster: FakeCluster, transaction_version: int
) -> None:
    producer = cluster.producer(ID | {"transaction.timeout.ms": 1_000})
    refusal = ProducerFencedError if transaction_version == 1 else TransactionAbortedError
    with (
        pytest.raises(refusal, match=r"transaction\.timeout\.ms=1000"),
        producer.transaction() as t,
    ):
        t.send(Message("accounts", partition=0, value=b"1"))
        producer.flush()
        cluster.advance(2_000)
    assert values(cluster) == []


@pytest.mark.parametrize("transaction_version", [2], indirect=True)
def test_a_producer_of_version_2_goes_on_after_a_transaction_that_was_open_for_too_long(
    cluster: FakeCluster,
) -> None:
    with cluster.producer(ID | {"transaction.timeout.ms": 1_000}) as producer:
        with pytest.raises(TransactionAbortedError), producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"late"))
            producer.flush()
            cluster.advance(2_000)
        with producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"in time"))
    assert values(cluster) == [b"in time"]


# Coordinators -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "EndTxn", "Produce"]
)
@pytest.mark.parametrize("carried_out", [False, True])
def test_requests_are_repeated_when_connections_break(
    cluster: FakeCluster, kind: str, carried_out: bool
) -> None:
    with cluster.producer(ID) as producer:
        cluster.cut_next(kind, is_carried_out=carried_out)
        send_two(producer)
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"+10", b"-10", b"-10"]


@pytest.mark.parametrize("kind", ["InitProducerId", "AddPartitionsToTxn", "EndTxn"])
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_passing_refusals_of_the_coordinator_are_waited_for(
    cluster: FakeCluster, kind: str, error: ErrorCode
) -> None:
    with cluster.producer(ID) as producer:
        cluster.fail_next(kind, error, times=3)
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"-10"]


def test_the_coordinator_may_move_in_a_transaction(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer, producer.transaction() as t:
        t.send(Message("accounts", partition=0, value=b"1"))
        producer.flush()
        cluster.move_coordinator(2)
        t.send(Message("accounts", partition=1, value=b"2"))
    assert sorted(values(cluster)) == [b"1", b"2"]


def test_markers_that_are_missing_delay_only_the_next_transaction(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        cluster.transactions.holds_markers = True
        send_two(producer)
        assert values(cluster) == []
        cluster.after(500, lambda: setattr(cluster.transactions, "holds_markers", False))
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"+10", b"-10", b"-10"]
    assert cluster.time_ms >= 500


def test_a_commit_whose_answer_is_lost_and_that_is_then_fenced_has_an_unknown_outcome(
    cluster: FakeCluster,
) -> None:
    producer, second = cluster.producer(ID), cluster.producer(ID)
    cluster.cut_next("EndTxn", is_carried_out=True)
    cluster.fail_next("EndTxn", ErrorCode.PRODUCER_FENCED)
    with pytest.raises(CommitUnknownError, match="is not known"):
        send_two(producer)
    second.init_transactions()
    assert sorted(values(cluster)) == [b"+10", b"-10"], "it was committed"


def test_a_commit_that_takes_long_goes_on(cluster: FakeCluster) -> None:
    with cluster.producer(ID | {"max.block.ms": 300}) as producer:
        cluster.fail_next("EndTxn", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=4)
        with pytest.raises(RequestTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
            send_two(producer)
        producer.init_transactions(timeout_ms=10_000)
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"+10", b"-10", b"-10"]


def test_a_commit_that_ends_after_its_time_can_be_asked_for_again(cluster: FakeCluster) -> None:
    with cluster.producer(ID | {"max.block.ms": 300}) as producer:
        t = producer.transaction()
        t.send(Message("accounts", partition=0, value=b"-10"))
        cluster.fail_next("EndTxn", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=4)
        with pytest.raises(RequestTimeoutError):
            t.commit()
        producer.init_transactions(timeout_ms=10_000)  # Meanwhile the commit ends.
        t.commit()
        t = producer.transaction()
        t.commit()
        with pytest.raises(TransactionStateError, match="this transaction has ended"):
            t.commit()  # Nobody has waited in vain for that one.
    assert values(cluster) == [b"-10"]


@pytest.mark.parametrize(
    ("kind", "error", "raised"),
    [
        ("FindCoordinator", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
        ("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
        ("InitProducerId", ErrorCode.INVALID_TRANSACTION_TIMEOUT, BrokerError),
        ("EndTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING, BrokerError),
        ("EndTxn", ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    ],
)
def test_refusals_that_end_the_producer(
    cluster: FakeCluster, kind: str, error: ErrorCode, raised: type[Exception]
) -> None:
    ends_the_producer(cluster, kind, error, raised)


@pytest.mark.parametrize("transaction_version", [1], indirect=True)
@pytest.mark.parametrize(
    ("error", "raised"),
    [(ErrorCode.INVALID_TXN_STATE, BrokerError), (ErrorCode.PRODUCER_FENCED, ProducerFencedError)],
)
def test_refusals_of_partitions_that_end_the_producer(
    cluster: FakeCluster, error: ErrorCode, raised: type[Exception]
) -> None:
    ends_the_producer(cluster, "AddPartitionsToTxn", error, raised)


def ends_the_producer(cluster: FakeCluster, kind: str, error: ErrorCode, raised: type[Exception]) -> None:
    producer = cluster.producer(ID)
    cluster.fail_next(kind, error)
    with pytest.raises(raised, match=error.name) as caught:
        send_two(producer)
    with pytest.raises(type(caught.value)):
        producer.transaction()
    assert values(cluster) == []


# Errors that only end the transaction -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("EndTxn", ErrorCode.TRANSACTION_ABORTABLE),
        ("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("Produce", ErrorCode.INVALID_RECORD),
        ("Produce", ErrorCode.TRANSACTION_ABORTABLE),
        ("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("Produce", ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_one_failure_aborts_everything_and_the_producer_goes_on(
    cluster: FakeCluster, kind: str, error: ErrorCode
) -> None:
    aborts_everything(cluster, kind, error)


@pytest.mark.parametrize("transaction_version", [1], indirect=True)
@pytest.mark.parametrize("error", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION])
def test_a_refused_partition_aborts_everything(cluster: FakeCluster, error: ErrorCode) -> None:
    aborts_everything(cluster, "AddPartitionsToTxn", error)


def aborts_everything(cluster: FakeCluster, kind: str, error: ErrorCode) -> None:
    with cluster.producer(ID) as producer:
        send_two(producer)
        cluster.fail_next(kind, error)
        with pytest.raises(BrokerError, match=error.name):
            send_two(producer)
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"+10", b"-10", b"-10"]


def test_a_condition_that_does_not_hold_aborts_everything(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.features[KEY_VERSIONS_FEATURE] = 1
    cluster.write(Message("accounts", partition=0, key=b"a", value=b"0"))
    with cluster.producer(ID) as producer:
        with pytest.raises(KeyVersionMismatchError) as caught, producer.transaction() as t:
            t.send(Message("accounts", partition=1, value=b"+10"))
            t.send(Message("accounts", partition=0, key=b"a", value=b"-10", expected_version=7))
        assert caught.value.version == 0
        with producer.transaction() as t:
            t.send(Message("accounts", partition=0, key=b"a", value=b"-10", expected_version=0))
    assert values(cluster) == [b"0", b"-10"]


def test_a_message_that_comes_while_the_end_is_decided_harms_nothing(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        cluster.transactions.holds_markers = True
        t = producer.transaction()
        t.send(Message("accounts", partition=0, value=b"1"))
        cluster.cut_next("EndTxn", is_carried_out=True)
        late: list[str] = []

        def send_late() -> None:
            try:
                t.send(Message("accounts", partition=0, value=b"late"))
            except TransactionStateError as error:
                late.append(str(error))
            machine.failed(RecordTooLargeError("a record that has waited for room"))
            cluster.transactions.holds_markers = False

        machine = producer._engine.transactions
        assert machine is not None
        cluster.after(60, send_late)
        t.commit()
    assert values(cluster) == [b"1"]
    assert "is committing a transaction" in late[0]


@pytest.mark.parametrize("in_bulk", [False, True])
def test_a_message_that_is_never_queued_fails_the_transaction(cluster: FakeCluster, in_bulk: bool) -> None:
    huge = b"x" * 2_000_000
    with cluster.producer(ID) as producer:
        with pytest.raises(RecordTooLargeError), producer.transaction() as t:
            t.send(Message("accounts", partition=0, value=b"1"))
            producer.flush()
            if in_bulk:
                t.send_many("accounts", [huge], partition=1)
            else:
                t.send(Message("accounts", partition=1, value=huge))
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"-10"]


def test_an_append_id_that_the_log_has_fails_the_transaction(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.features |= {FEATURE: 1, APPEND_IDS_FEATURE: 2}
    named = {"append_id": b"sixteen bytes id", "unused_before": 0}
    with cluster.producer(ID) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as t:
            t.send_at(0, Message("accounts", partition=0, value=b"1"), **named)
            producer.flush()
            raise ZeroDivisionError
        with pytest.raises(TransactionAbortedError, match="append_id already"), producer.transaction() as t:
            t.send_at(0, Message("accounts", partition=0, value=b"1"), **named)
    assert values(cluster) == []


def test_after_a_failure_the_open_transaction_takes_nothing_more(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        t = producer.transaction()
        cluster.fail_next("Produce", ErrorCode.INVALID_RECORD)
        response = t.send(Message("accounts", partition=0, value=b"1"))
        producer.flush()
        assert isinstance(response.error, BrokerError)
        with pytest.raises(TransactionStateError, match=r"call abort\(\) first"):
            t.send(Message("accounts", partition=0, value=b"2"))
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            t.commit()
        t.abort()
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"-10"]


def test_a_record_that_may_arrive_late_costs_an_epoch(cluster: FakeCluster, transaction_version: int) -> None:
    """KIP-360: what the leader has not answered could fill the gap of a later transaction. With
    transaction.version 2 the end of the failed one has given a new epoch already."""
    with cluster.producer(ID | {"delivery.timeout.ms": 1_000, "request.timeout.ms": 500}) as producer:
        send_two(producer)
        cluster.pause_broker(cluster.topics["accounts"][1].leader)
        cluster.move_coordinator(cluster.topics["accounts"][0].leader)
        with pytest.raises(Exception, match=r"delivery\.timeout\.ms"):
            send_two(producer)
        cluster.start_broker(cluster.topics["accounts"][1].leader)
        send_two(producer)
        asked = [
            request
            for broker in cluster.brokers.values()
            for request in broker.requests
            if isinstance(request, InitProducerIdRequest)
        ]
    named = [(request.producer_id >= 0, request.producer_epoch) for request in asked]
    assert named == [(False, -1), (True, 0)][: 2 if transaction_version == 1 else 1]
    assert sorted(values(cluster)) == [b"+10", b"+10", b"-10", b"-10"]
