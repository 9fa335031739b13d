"""Transactions in a partition: what its leader takes, what readers of committed records see, and markers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.log import aborted_search
from holdfast_log.broker.replication.metrics import PARTITION_METRICS
from holdfast_log.broker.replication.verifying import Verdicts
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.control_records import EndMarker, end_marker_of
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import PartitionData
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.produce import PartitionProduceResponse
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.world import (
    Client,
    World,
    fetch_request,
    follow,
    only_fetched,
    only_produced,
    produce_request,
)
from tests.models.batches import batch
from tests.models.rules import Rules
from tests.models.transactional import PRODUCER, transactional_batch


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Coordinator:
    """A coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, Sequence[TopicPartition], Deferred[Verdicts]]] = []
        self.added: list[int] = []
        """The epochs of the questions that were additions."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Deferred[Verdicts]:
        if adds:
            self.added.append(producer_epoch)
        answer: Deferred[Verdicts] = Deferred()
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, answer))
        return answer

    def answer(self, code: ErrorCode = ErrorCode.NONE, number: int = 0) -> None:
        *_, partitions, answer = self.asked.pop(number)
        answer.callback(dict.fromkeys(partitions, code))


def transactional(records: bytes, topic: str = "t", acks: int = -1) -> object:
    request = produce_request(topic, bytes(records), acks=acks)
    request.transactional_id = "tx"
    return request


def write(
    world: World, *values: bytes, epoch: int = 0, sequence: int = 0, producer_id: int = PRODUCER
) -> PartitionProduceResponse:
    records = transactional_batch(*values, epoch=epoch, sequence=sequence, producer_id=producer_id)
    return only_produced(world.client().call(transactional(records)))  # type: ignore[arg-type]


def marked(
    world: World, is_commit: bool = True, *, epoch: int = 0, coordinator: int = 0,
    producer_id: int = PRODUCER, topic: str = "t", client: Client | None = None,
    indexes: Sequence[int] = (0,),
) -> ErrorCode:  # fmt: skip
    """Have a marker written. Returns the error of the first partition."""
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))]
    marker = WritableTxnMarker(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=is_commit, topics=topics,
        coordinator_epoch=coordinator,
    )  # fmt: skip
    response = (client or world.client()).call(WriteTxnMarkersRequest(markers=[marker]))
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


def read(world: World, offset: int = 0, *, isolation: int = 1, **how: int) -> PartitionData:
    request = fetch_request(world.topic_id("t"), offset, min_bytes=0, **how)
    request.isolation_level = isolation
    return only_fetched(world.client().call(request))


def end(data: PartitionData) -> int:
    """The offset behind the last batch that was read; 0 if none was."""
    headers = split(bytes(data.records or b""))
    return headers[-1].next_offset if headers else 0


def latest(world: World, isolation: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
    response = world.client().call(
        ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    )
    offset: int = response.topics[0].partitions[0].offset
    return offset


def stable_lag(world: World) -> float:
    """What the broker's metrics say that readers of committed records of t-0 do not get yet."""
    (row,) = (row for row in PARTITION_METRICS if row.name == "kafka_cluster_partition_laststableoffsetlag")
    return {sample.labels: sample.value for sample in row.read(world.replicas)}["t", "0"]


def aborted(data: PartitionData) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]


def test_readers_of_committed_records_stop_at_an_open_transaction(world: World) -> None:
    world.assign("t")
    world.client().call(produce_request("t", batch(b"before")))
    assert write(world, b"one", b"two").base_offset == 1
    world.client().call(produce_request("t", batch(b"behind")))
    committed, all_ = read(world), read(world, isolation=0)
    assert (end(committed), committed.high_watermark, committed.last_stable_offset) == (1, 4, 1)
    assert committed.aborted_transactions is None
    assert (end(all_), all_.last_stable_offset, all_.aborted_transactions) == (4, 1, None)
    assert (latest(world, 1), latest(world, 0)) == (1, 4)
    assert stable_lag(world) == 3

    assert marked(world) == ErrorCode.NONE
    assert stable_lag(world) == 0
    committed = read(world)
    assert (end(committed), committed.last_stable_offset, aborted(committed)) == (5, 5, [])
    assert read(world, isolation=0).last_stable_offset == 5
    assert latest(world, 1) == 5


def test_readers_learn_of_aborted_transactions_in_their_range(world: World) -> None:
    world.assign("t")
    write(world, b"0", b"1")
    write(world, b"2", producer_id=8)
    assert marked(world, is_commit=False) == ErrorCode.NONE
    assert (end(read(world)), read(world).last_stable_offset) == (2, 2)
    assert marked(world, producer_id=8) == ErrorCode.NONE
    write(world, b"5", sequence=2)
    assert marked(world, is_commit=False) == ErrorCode.NONE
    assert aborted(read(world)) == [(PRODUCER, 0), (PRODUCER, 5)]
    assert aborted(read(world, 4)) == [(PRODUCER, 5)]
    data = read(world, partition_max_bytes=1)
    assert (end(data), aborted(data)) == (2, [(PRODUCER, 0)])
    assert read(world, isolation=0).aborted_transactions is None


def test_a_read_ends_where_too_many_aborted_transactions_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted_search, "ENDS_MAX", 2)
    world.assign("t")
    abort_each(world, "t", 5)
    offset = 0
    told: set[tuple[int, int]] = set()
    while offset < 10:
        data = read(world, offset)
        assert len(aborted(data)) <= 3, "two that end in the read, and one whose marker is the next"
        assert end(data) > offset
        told.update(aborted(data))
        offset = end(data)
    assert told == {(PRODUCER, 2 * number) for number in range(5)}


def test_a_response_names_a_limited_number_of_aborted_transactions(world: World) -> None:
    for topic in ("t", "u"):
        world.assign(topic)
        abort_each(world, topic, 3)
    of_t, of_u = (fetch_request(world.topic_id(topic), 0, min_bytes=0) for topic in ("t", "u"))
    of_t.isolation_level, of_t.max_bytes = 1, 12 << 10
    of_t.topics += of_u.topics
    first, second = (each.partitions[0] for each in world.client().call(of_t).responses)
    assert len(aborted(first)) == 3
    assert not second.records, "the bytes are used up by what the response has to name"


def abort_each(world: World, topic: str, count: int) -> None:
    """Transactions of one record, which are all aborted."""
    for number in range(count):
        records = transactional_batch(b"x", sequence=number)
        only_produced(world.client().call(transactional(records, topic)))  # type: ignore[arg-type]
        assert marked(world, is_commit=False, topic=topic) == ErrorCode.NONE


def test_a_transaction_is_unstable_until_its_marker_is_committed(world: World) -> None:
    world.assign("t", replicas=(1, 2))
    client = world.client()
    client.ask(transactional(transactional_batch(b"x")))  # type: ignore[arg-type]
    follow(world, 1)
    assert only_produced(client.answers()[0]).error_code == ErrorCode.NONE
    coordinator = world.client()
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    coordinator.ask(
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=PRODUCER, producer_epoch=0, transaction_result=True, topics=topics,
                    coordinator_epoch=0,
                )
            ]
        )
    )  # fmt: skip
    assert coordinator.answers() == []
    assert read(world).last_stable_offset == 0
    reader = world.client()
    request = fetch_request(world.topic_id("t"), 0, max_wait_ms=500)
    request.isolation_level = 1
    reader.ask(request)
    assert reader.answers() == []
    follow(world, 2)
    (answer,) = coordinator.answers()
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert end(only_fetched(reader.answers()[0])) == 2


def test_markers_that_are_not_copied_in_time_are_answered(world: World) -> None:
    world.assign("t", replicas=(1, 2))
    coordinator = world.client()
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])]
    marker = WritableTxnMarker(
        producer_id=PRODUCER, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
    )
    coordinator.ask(WriteTxnMarkersRequest(markers=[marker]))
    world.clock.advance(20.0)
    (answer,) = coordinator.answers()
    codes = [each.error_code for each in answer.markers[0].topics[0].partitions]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_markers_are_fenced_by_the_epochs_of_producer_and_coordinator(world: World) -> None:
    world.assign("t")
    write(world, b"x", epoch=2)
    assert marked(world, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marked(world, epoch=2, coordinator=5) == ErrorCode.NONE
    assert marked(world, epoch=3, coordinator=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marked(world, epoch=3, coordinator=5) == ErrorCode.NONE
    assert write(world, b"late", epoch=2, sequence=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


ALTER = (AclOperation.ALTER, AclResource.CLUSTER)
ACTION = (AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)


@pytest.mark.parametrize("denied", [None, {ALTER, ACTION}])
def test_clients_without_the_right_may_not_write_markers(
    tmp_path: Path, denied: set[tuple[AclOperation, AclResource]] | None
) -> None:
    world = World(tmp_path, authorizer=Rules(denied))
    world.assign("t")
    write(world, b"x")
    for is_commit in (False, True):
        refused = marked(world, is_commit, client=world.stranger())
        assert refused == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.replicas.partition("t", 0).log.log_end_offset == 1


@pytest.mark.parametrize("denied", [{ALTER}, {ACTION}])
def test_a_client_that_may_alter_the_cluster_or_act_for_it_aborts(
    tmp_path: Path, denied: set[tuple[AclOperation, AclResource]], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, authorizer=Rules(denied))
    world.assign("t")
    write(world, b"x")
    with caplog.at_level(logging.INFO, logger="holdfast_log.broker.requests.audit"):
        assert marked(world, is_commit=False, client=world.stranger()) == ErrorCode.NONE
    assert (end(read(world)), aborted(read(world))) == (2, [(PRODUCER, 0)])
    assert "Aborted transactions of producer 7, epoch 0, in 1 partitions: ['t-0'], by " in caplog.text


def test_markers_of_clients_are_for_listeners_that_may_alter_the_cluster(tmp_path: Path) -> None:
    world = World(tmp_path, alter_listeners=("ADMIN",))
    world.assign("t")
    write(world, b"x")
    refused = marked(world, is_commit=False, client=world.stranger())
    assert refused == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert marked(world, is_commit=False) == ErrorCode.NONE


def test_a_client_does_not_commit_and_does_not_shut_the_coordinator_out(world: World) -> None:
    world.assign("t")
    write(world, b"x")
    stranger = world.stranger()
    assert marked(world, client=stranger) == ErrorCode.INVALID_REQUEST
    for later in (1, 2**31 - 1):
        refused = marked(world, is_commit=False, coordinator=later, client=stranger)
        assert refused == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(read(world)) == 0
    assert marked(world, coordinator=5) == ErrorCode.NONE
    write(world, b"y", sequence=1)
    assert marked(world, is_commit=False, coordinator=5, client=stranger) == ErrorCode.NONE
    assert aborted(read(world)) == [(PRODUCER, 2)]
    elsewhere = marked(world, is_commit=False, coordinator=9, topic="missing", client=stranger)
    assert elsewhere == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_producer_writes_nothing_outside_of_its_open_transaction(world: World) -> None:
    world.assign("t")
    write(world, b"x")
    outside = batch(b"y", producer_id=PRODUCER, producer_epoch=0, base_sequence=1)
    produced = only_produced(world.client().call(produce_request("t", outside)))
    assert produced.error_code == ErrorCode.INVALID_TXN_STATE
    assert marked(world) == ErrorCode.NONE
    produced = only_produced(world.client().call(produce_request("t", outside)))
    assert produced.error_code == ErrorCode.NONE


def test_a_transactional_batch_needs_a_transactional_id(world: World) -> None:
    world.assign("t")
    response = world.client().call(produce_request("t", bytes(transactional_batch())))
    assert only_produced(response).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class TestVerification:
    """A coordinator confirms each transaction that begins."""

    @pytest.fixture
    def coordinator(self, world: World) -> Coordinator:
        world.assign("t")
        world.verifying.verifier = coordinator = Coordinator()
        return coordinator

    def test_the_coordinator_is_asked_when_a_transaction_begins(
        self, world: World, coordinator: Coordinator
    ) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch(b"a")))  # type: ignore[arg-type]
        client.ask(transactional(transactional_batch(b"b", sequence=1)))  # type: ignore[arg-type]
        assert client.answers() == []
        assert [asked[:4] for asked in coordinator.asked] == 2 * [("tx", PRODUCER, 0, [("t", 0)])]
        coordinator.answer(number=1)
        assert client.answers() == []
        coordinator.answer()
        assert [only_produced(each).base_offset for each in client.answers()] == [0, 1]
        assert write(world, b"c", sequence=2).base_offset == 2
        assert coordinator.asked == []

    @pytest.mark.parametrize(
        ("verdict", "version", "answered"),
        [
            (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
            (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
            (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
            (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
            (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
            (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        ],
    )
    def test_what_the_coordinator_does_not_confirm_is_refused(
        self, world: World, coordinator: Coordinator, verdict: ErrorCode, version: int, answered: ErrorCode
    ) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch()), version)  # type: ignore[arg-type]
        coordinator.answer(verdict)
        assert only_produced(client.answers()[0]).error_code == answered
        assert world.replicas.partition("t", 0).log.log_end_offset == 0

    def test_a_marker_that_comes_in_between_ends_what_was_confirmed(
        self, world: World, coordinator: Coordinator
    ) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch()))  # type: ignore[arg-type]
        assert marked(world, is_commit=False) == ErrorCode.NONE
        coordinator.answer()
        assert only_produced(client.answers()[0]).error_code == ErrorCode.INVALID_TXN_STATE
        assert read(world).last_stable_offset == 1

    def test_a_retry_needs_no_confirmation(self, world: World, coordinator: Coordinator) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch()))  # type: ignore[arg-type]
        coordinator.answer()
        client.ask(transactional(transactional_batch()))  # type: ignore[arg-type]
        assert coordinator.asked == []
        assert [only_produced(each).base_offset for each in client.answers()] == [0, 0]
        assert marked(world) == ErrorCode.NONE
        # What has the sequence of an ended transaction's batch is no retry.
        client.ask(transactional(transactional_batch()))  # type: ignore[arg-type]
        coordinator.answer(ErrorCode.NONE)
        (refused,) = client.answers()
        assert only_produced(refused).error_code == ErrorCode.UNKNOWN_PRODUCER_ID


class TestAddition:
    """From version 12 on the leader has its partitions added to the transaction (KIP-890)."""

    @pytest.fixture
    def coordinator(self, world: World) -> Coordinator:
        world.assign("t")
        world.verifying.verifier = coordinator = Coordinator()
        return coordinator

    def test_a_batch_that_begins_a_transaction_adds_its_partition(
        self, world: World, coordinator: Coordinator
    ) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch(b"a")), 12)  # type: ignore[arg-type]
        assert coordinator.added == [0]
        coordinator.answer()
        assert only_produced(client.answers()[0]).base_offset == 0
        client.ask(transactional(transactional_batch(b"b", sequence=1)), 12)  # type: ignore[arg-type]
        assert only_produced(client.answers()[0]).base_offset == 1
        assert coordinator.asked == []
        client.ask(transactional(transactional_batch(b"c", producer_id=8)), 11)  # type: ignore[arg-type]
        assert (len(coordinator.asked), coordinator.added) == (1, [0]), "version 11 only asks"

    def test_the_next_epoch_begins_another_transaction(self, world: World, coordinator: Coordinator) -> None:
        """Its producer has ended the last one, whose marker has not come yet."""
        client = world.client()
        client.ask(transactional(transactional_batch(b"a")), 12)  # type: ignore[arg-type]
        coordinator.answer()
        client.answers()
        client.ask(transactional(transactional_batch(b"b", epoch=1)), 12)  # type: ignore[arg-type]
        assert client.answers() == []
        assert world.replicas.partition("t", 0).log.log_end_offset == 1
        coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert marked(world, epoch=1) == ErrorCode.NONE
        world.clock.advance(0.02)
        assert coordinator.added == [0, 1, 1]
        coordinator.answer()
        assert only_produced(client.answers()[0]).base_offset == 2
        assert read(world).last_stable_offset == 2

    def test_what_cannot_be_added_for_long_is_sent_again(
        self, world: World, coordinator: Coordinator
    ) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch()), 12)  # type: ignore[arg-type]
        for _ in range(6):
            assert client.answers() == []
            coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            world.clock.advance(0.02)
        (answer,) = client.answers()
        assert only_produced(answer).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert coordinator.asked == []

    def test_a_marker_that_comes_in_between_ends_what_was_added(
        self, world: World, coordinator: Coordinator
    ) -> None:
        client = world.client()
        client.ask(transactional(transactional_batch()), 12)  # type: ignore[arg-type]
        assert marked(world, is_commit=False) == ErrorCode.NONE
        coordinator.answer()
        assert only_produced(client.answers()[0]).error_code == ErrorCode.INVALID_TXN_STATE


def test_without_a_coordinator_no_transaction_begins(world: World) -> None:
    world.assign("t")
    world.verifying.verifier = None
    assert write(world, b"x").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_groups_coordinator_is_told_of_markers_in_its_partitions(world: World) -> None:
    world.assign("__consumer_offsets", 3)
    world.assign("t")
    told: list[tuple[int, int, int, bool]] = []
    world.markers.applied = lambda *marker: told.append(marker)
    marked(world, topic="__consumer_offsets", indexes=(3,), epoch=1)
    marked(world)
    assert told == [(3, PRODUCER, 1, True)]


def test_markers_have_kafkas_form_in_the_log(world: World) -> None:
    world.assign("t")
    marked(world, is_commit=False, epoch=4, coordinator=9)
    records = memoryview(bytes(read(world).records or b""))
    (header,) = split(records)
    assert end_marker_of(records, header) == EndMarker(is_commit=False, coordinator_epoch=9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, 4, -1)
