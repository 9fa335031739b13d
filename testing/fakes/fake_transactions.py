"""The transaction coordinator of a fake cluster: the broker's own shard on simulated time."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast_log.broker.groups.commit_rows import response_rows
from holdfast_log.broker.ownership.committers import may_commit
from holdfast_log.broker.transactions.answers import known_error
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.ownership.records import PartitionKey, decode_ownership
from holdfast_log.coordinator.shards.effects import ShardRecord
from holdfast_log.coordinator.transactions.effects import (
    MarkersToWrite,
    ProducerAnswer,
    ProducerIdWanted,
    TransactionResult,
)
from holdfast_log.coordinator.transactions.epochs import BUMPING_VERSION, ProducerName
from holdfast_log.coordinator.transactions.listing import TransactionFilter
from holdfast_log.coordinator.transactions.records import by_topic
from holdfast_log.coordinator.transactions.settings import TransactionSettings
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.coordinator.transactions.states import BY_TITLE, TransactionState
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from holdfast_log.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopicData,
)
from holdfast_log.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_cluster import FakeCluster

VERSIONS = {24: (0, 3), 25: (0, 4), 26: (0, 4), 28: (0, 4), 65: (0, 0), 66: (0, 1)}
VERSIONS_2 = {0: (3, 12), 26: (0, 5), 28: (0, 5)}
"""Those that belong to transaction.version 2, beside `VERSIONS`."""
_FIRST_PRODUCE_THAT_ADDS, _FIRST_COMMIT_THAT_ADDS, _FIRST_END_WITH_EPOCH = 12, 5, 5
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
_KINDS = (
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    ListTransactionsRequest,
    DescribeTransactionsRequest,
)


class FakeTransactions:
    """All transactional ids of a fake cluster, coordinated by broker `node`. Another broker may take over.

    Markers are written when the cluster next does something, unless `holds_markers`.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.node = min(cluster.brokers)
        self.holds_markers = False
        self._cluster = cluster
        self._tokens = itertools.count(1)
        self._log: list[ShardRecord] = []
        self._markers: deque[MarkersToWrite] = deque()
        self.shard = TransactionShard(TransactionSettings())

    # Time and failures

    def time_ms(self) -> int:
        return 1_000_000 + self._cluster.time_ms

    def tick(self) -> None:
        """Carry out everything that is due."""
        self._perform(self.shard.tick(self.time_ms()))
        while self._markers and not self.holds_markers:
            self._write(self._markers.popleft())

    def next_ms(self) -> int | None:
        """Time of the next due event on the cluster's clock."""
        if self._markers and not self.holds_markers:
            return self._cluster.time_ms
        due_ms = self.shard.next_deadline_ms()
        return None if due_ms is None else due_ms - 1_000_000

    def move(self, node: int) -> None:
        """Make `node` the coordinator: it reads the log, and writes the markers that are missing."""
        self.node = node
        self._markers.clear()
        self.shard = TransactionShard(TransactionSettings())
        for key, value in self._log:
            self.shard.replay(key, value)
        self._perform(self.shard.loaded(self.time_ms()))

    def _perform(self, result: TransactionResult) -> Any:
        self._log += result.records
        self._markers += result.claims
        return result.replies[-1].answer if result.replies else None

    def _write(self, markers: MarkersToWrite) -> None:
        end = EndMarker(markers.is_commit, 0)
        for place in markers.partitions:
            if place == _OFFSETS:
                self._cluster.groups.transaction_ended(markers.producer_id, is_commit=markers.is_commit)
                continue
            partition = self._cluster.partition(*place)
            if partition is not None:
                partition.end_transaction(
                    end_marker_batch(
                        markers.producer_id, markers.producer_epoch, end, self._cluster.wall_ms()
                    )
                )
        self._perform(self.shard.marked(markers, markers.partitions, self.time_ms()))

    # Requests

    def handles(self, request: Request[Any]) -> bool:
        is_of_transaction = (
            isinstance(request, InitProducerIdRequest) and request.transactional_id is not None
        )
        return is_of_transaction or isinstance(request, _KINDS)

    def respond(self, node: int, request: Request[Any], error: ErrorCode, version: int) -> Response:
        """The response to a client's request. `error` is a failure that the test has planned."""
        if isinstance(request, TxnOffsetCommitRequest):
            return self._commit_offsets(node, request, error, adds=version >= _FIRST_COMMIT_THAT_ADDS)
        if isinstance(request, ListTransactionsRequest):
            return self._listed(request, error, is_coordinator=node == self.node)
        if error is ErrorCode.NONE and node != self.node:
            error = ErrorCode.NOT_COORDINATOR
        match request:
            case InitProducerIdRequest():
                answer = self._named(request) if error is ErrorCode.NONE else ProducerAnswer(error)
                return InitProducerIdResponse(
                    throttle_time_ms=0,
                    error_code=answer.error,
                    producer_id=answer.producer_id,
                    producer_epoch=answer.producer_epoch,
                )
            case AddPartitionsToTxnRequest():
                return self._add_partitions(request, error)
            case DescribeTransactionsRequest():
                rows = [self._described(each, error) for each in request.transactional_ids]
                return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=rows)
            case AddOffsetsToTxnRequest():
                producer = ProducerName(request.producer_id, request.producer_epoch)
                error = error or self._add(request.transactional_id, producer, [_OFFSETS])
                return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error)
            case EndTxnRequest():
                error = error or self._lost(request)
                answer = ProducerAnswer(error)
                if error is ErrorCode.NONE:
                    answer = self._ended(request, bumps=version >= _FIRST_END_WITH_EPOCH)
                return EndTxnResponse(
                    throttle_time_ms=0,
                    error_code=answer.error,
                    producer_id=answer.producer_id,
                    producer_epoch=answer.producer_epoch,
                )
        raise AssertionError(request)

    def refusal(
        self, transactional_id: str | None, records: memoryview, place: TopicPartition, version: int
    ) -> ErrorCode:
        """Why a leader may not append a transactional batch: its coordinator does not confirm it, or with a
        Produce of transaction.version 2, does not add the partition."""
        (header,) = split(bytearray(records))
        if not header.is_transactional:
            return ErrorCode.NONE
        producer = ProducerName(header.producer_id, header.producer_epoch)
        if version >= _FIRST_PRODUCE_THAT_ADDS:
            error = self._add(transactional_id or "", producer, [place], client_version=BUMPING_VERSION)
            return known_error(error, knows_fenced=False)
        result = self.shard.verify_partitions(0, transactional_id or "", producer, [place])
        answer: Any = result.replies[-1].answer
        error = answer.partitions.get(place, answer.error)
        return known_error(error, knows_fenced=False, knows_abortable=False)

    def _listed(
        self, request: ListTransactionsRequest, error: ErrorCode, *, is_coordinator: bool
    ) -> Response:
        states = {BY_TITLE[title] for title in request.state_filters if title in BY_TITLE}
        wanted = TransactionFilter(
            states if request.state_filters else None,
            frozenset(request.producer_id_filters),
            request.duration_filter,
        )
        return ListTransactionsResponse(
            throttle_time_ms=0,
            error_code=error,
            unknown_state_filters=[each for each in request.state_filters if each not in BY_TITLE],
            transaction_states=[
                ListedTransaction(
                    transactional_id=name, producer_id=each.producer_id, transaction_state=each.state.title
                )
                for name, each in self.shard.transactions.items()
                if is_coordinator and wanted.has(each, self.time_ms())
            ],
        )

    def _described(self, transactional_id: str, error: ErrorCode) -> DescribedTransaction:
        found = self.shard.transactions.get(transactional_id)
        if found is None:
            error = error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        row = DescribedTransaction(
            error_code=error,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=-1,
            producer_id=-1,
            producer_epoch=-1,
            topics=[],
        )
        if found is None or error is not ErrorCode.NONE:
            return row
        return replace(
            row,
            transaction_state=found.state.title,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TransactionTopicData(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(found.partitions).items()
            ],
        )

    def _named(self, request: InitProducerIdRequest) -> ProducerAnswer:
        expected = None
        if request.producer_id >= 0:
            expected = ProducerName(request.producer_id, request.producer_epoch)

        def asked(new_producer_id: int | None) -> Any:
            return self._perform(
                self.shard.init_producer_id(
                    next(self._tokens),
                    request.transactional_id or "",
                    request.transaction_timeout_ms,
                    now_ms=self.time_ms(),
                    expected=expected,
                    new_producer_id=new_producer_id,
                )
            )

        return self._with_id(asked)

    def _add(
        self,
        transactional_id: str,
        producer: ProducerName,
        partitions: list[TopicPartition],
        client_version: int = 0,
    ) -> ErrorCode:
        answer = self._perform(
            self.shard.add_partitions(
                next(self._tokens),
                transactional_id,
                producer,
                partitions,
                now_ms=self.time_ms(),
                client_version=client_version,
            )
        )
        return ErrorCode(answer.error)

    def _add_partitions(self, request: AddPartitionsToTxnRequest, error: ErrorCode) -> Response:
        topics = request.v3_and_below_topics
        partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        unknown = {place for place in partitions if self._cluster.partition(*place) is None}
        others = error or ErrorCode.OPERATION_NOT_ATTEMPTED
        if not unknown and error is ErrorCode.NONE:
            producer = ProducerName(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            others = self._add(request.v3_and_below_transactional_id, producer, partitions)

        def code(place: TopicPartition) -> ErrorCode:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if place in unknown else others

        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_transaction=[],
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index,
                            partition_error_code=code(TopicPartition(topic.name, index)),
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in topics
            ],
        )

    def _lost(self, request: EndTxnRequest) -> ErrorCode:
        """The error of a commit of what was written for an owner whose grant has ended."""
        transaction = self.shard.transactions.get(request.transactional_id)
        if not request.committed or (transaction is not None and transaction.state in _COMMITTED):
            return ErrorCode.NONE
        for each in request.owned:
            topic_id = self._cluster.topic_ids[each.topic]
            key = PartitionKey(topic_id, each.partition, each.topic)
            znode = self._cluster.ownership.znodes.get(key)
            record = None if znode is None else decode_ownership(key.path, znode[0])
            groups = () if record is None else record.histories
            if not any(may_commit(record, group, each.owner_token) for group in groups):
                return ErrorCode.OWNERSHIP_FENCED
        return ErrorCode.NONE

    def _ended(self, request: EndTxnRequest, *, bumps: bool) -> ProducerAnswer:
        def asked(new_producer_id: int | None) -> Any:
            return self._perform(
                self.shard.end(
                    next(self._tokens),
                    request.transactional_id,
                    ProducerName(request.producer_id, request.producer_epoch),
                    is_commit=request.committed,
                    now_ms=self.time_ms(),
                    bumps=bumps,
                    new_producer_id=new_producer_id,
                )
            )

        answer = self._with_id(asked)
        return answer if bumps else ProducerAnswer(answer.error)

    def _with_id(self, asked: Callable[[int | None], Any]) -> ProducerAnswer:
        """The answer of the shard, which may want a new producer id for it."""
        answer = asked(None)
        if isinstance(answer, ProducerIdWanted):
            self._cluster.producer_id += 1
            answer = asked(self._cluster.producer_id)
        assert isinstance(answer, ProducerAnswer)
        return answer

    def _commit_offsets(
        self, node: int, request: TxnOffsetCommitRequest, error: ErrorCode, *, adds: bool
    ) -> Response:
        producer = ProducerName(request.producer_id, request.producer_epoch)
        if error is ErrorCode.NONE and adds:
            error = self._add(request.transactional_id, producer, [_OFFSETS], client_version=BUMPING_VERSION)
        elif error is ErrorCode.NONE:
            result = self.shard.verify_partitions(0, request.transactional_id, producer, [_OFFSETS])
            answer: Any = result.replies[-1].answer
            error = known_error(answer.partitions.get(_OFFSETS, answer.error), knows_fenced=False)
        found: dict[TopicPartition, ErrorCode] = {}
        if error is ErrorCode.NONE:
            found = self._cluster.groups.commit_in_transaction(node, request)
        return TxnOffsetCommitResponse(
            throttle_time_ms=0, topics=response_rows(request.topics, found.items(), error)
        )
