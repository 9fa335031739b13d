"""Offsets of more partitions than a broker handles in a turn: committed in a transaction, read, deleted."""

from __future__ import annotations

from typing import Any

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_groups import DeleteGroupsRequest
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.cluster import Cluster
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
}
PARTITIONS = 600
NAME = "writer"


def answered(client: RawSocket, request: Any, version: int) -> Any:
    """The answer, once coordinators have read their logs."""
    answers: list[Any] = []

    def is_final() -> bool:
        answers.append(client.call(request, version))
        return answers[-1].error_code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )

    until(is_final)
    return answers[-1]


def fetched(client: RawSocket, group: str, *, stable: bool = False) -> tuple[int, list[Any]]:
    """The error of a group, and the rows of all its partitions."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable
    )
    (found,) = client.call(request, 9).groups
    return found.error_code, [row for topic in found.topics for row in topic.partitions]


def committed(client: RawSocket, group: str, *, stable: bool = True) -> dict[int, int]:
    """The offsets of all partitions of a group, as soon as they are stable."""
    rows: list[Any] = []

    def are_stable() -> bool:
        error, rows[:] = fetched(client, group, stable=stable)
        assert error == ErrorCode.NONE
        assert {row.error_code for row in rows} <= {ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return all(row.error_code == ErrorCode.NONE for row in rows)

    until(are_stable)
    return {row.partition_index: row.committed_offset for row in rows}


def test_they_count_when_their_transaction_ends_and_are_gone_when_topic_or_group_is_deleted(
    cluster: Cluster,
) -> None:
    (broker,) = cluster.start(1, SETTINGS)
    with Admin({"bootstrap.servers": broker.address}) as admin, RawSocket(broker.port) as client:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        until(lambda: all(found_coordinators(client)))
        commit_all(client, "kept")
        everything = dict.fromkeys(range(PARTITIONS), 7)
        assert committed(client, "kept") == committed(client, "kept", stable=False) == everything
        commit_all(client, "deleted")
        (result,) = client.call(DeleteGroupsRequest(groups_names=["deleted"]), 2).results
        assert result.error_code == ErrorCode.NONE
        assert committed(client, "deleted") == {}
        assert committed(client, "kept") == everything
        admin.delete_topics(["t"])
        until(lambda: committed(client, "kept") == {})
    broker.restart()
    broker.wait_ready()
    with RawSocket(broker.port) as client:
        until(lambda: all(found_coordinators(client)))
        for group in ("kept", "deleted"):
            until(lambda group=group: fetched(client, group) == (ErrorCode.NONE, []))


def found_coordinators(client: RawSocket) -> list[bool]:
    found = []
    for kind, keys in ((0, ["kept", "deleted"]), (1, [NAME])):
        rows = client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=keys), 4).coordinators
        found += [row.error_code == ErrorCode.NONE for row in rows]
    return found


def commit_all(client: RawSocket, group: str) -> None:
    """Commit an offset of each partition in one request, in a transaction that ends."""
    wanted = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    began = answered(client, wanted, 4)
    assert began.error_code == ErrorCode.NONE
    rows = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=None)
        for index in range(PARTITIONS)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=NAME,
        group_id=group,
        producer_id=began.producer_id,
        producer_epoch=began.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=rows)],
    )

    def is_stored() -> bool:
        codes = {row.error_code for row in client.call(request, 5).topics[0].partitions}
        return codes == {ErrorCode.NONE}

    until(is_stored)
    ending = EndTxnRequest(
        transactional_id=NAME,
        producer_id=began.producer_id,
        producer_epoch=began.producer_epoch,
        committed=True,
    )
    assert answered(client, ending, 3).error_code == ErrorCode.NONE
