"""End markers are sent until every partition has them, to whoever leads it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.broker.transactions.markers import RETRY_MAX_S, RETRY_S, MarkerSender, ShardMarkers
from holdfast_log.coordinator.shards.effects import Decision
from holdfast_log.coordinator.transactions.effects import MarkersToWrite
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EPOCH = 4


class Brokers:
    """Leaders whose answers the test gives."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.leaders: dict[TopicPartition, int | None] = {A0: 1, A1: 2, B0: 1}
        self.asked: list[tuple[int, WriteTxnMarkersRequest, Deferred[Any]]] = []
        self.sender = MarkerSender(self.clock, self._leader_of, self._send)
        self.written: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.shard = self.new_shard()

    def new_shard(self) -> ShardMarkers:
        return self.sender.of_shard(self._marked)

    def end(self, name: str, producer_id: int, *partitions: TopicPartition) -> None:
        markers = MarkersToWrite(name, producer_id, 0, True, frozenset(partitions))
        assert self.shard.claim([markers], Decision(EPOCH, 10)).called, "producers need not wait"

    def answer(self, *errors: ErrorCode) -> None:
        """Answer the oldest request; `errors` of its partitions, in order."""
        _, request, done = self.asked.pop(0)
        left = list(errors)
        done.callback(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index,
                                        error_code=left.pop(0) if left else ErrorCode.NONE,
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )

    def _leader_of(self, topic: str, index: int) -> int | None:
        return self.leaders[TopicPartition(topic, index)]

    def _send(self, broker_id: int, request: Any, timeout_ms: int | None = None) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.asked.append((broker_id, request, done))
        return done

    def _marked(self, markers: MarkersToWrite, partitions: Collection[TopicPartition]) -> None:
        self.written.append((markers.transactional_id, tuple(partitions)))


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    brokers = Brokers()
    brokers.end("x", 7, A0, A1, B0)
    assert [broker_id for broker_id, _, _ in brokers.asked] == [1, 2]
    (marker,) = brokers.asked[0][1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 0, EPOCH)
    assert marker.transaction_result
    assert [topic.name for topic in marker.topics] == ["a", "b"]
    brokers.answer()
    assert brokers.written == [("x", (A0, B0))]
    brokers.answer()
    assert brokers.written[1:] == [("x", (A1,))]
    assert brokers.sender.pending == 0


def test_transactions_that_end_meanwhile_share_the_next_request() -> None:
    brokers = Brokers()
    for number in range(5):
        brokers.end(f"t{number}", number, A0)
    assert len(brokers.asked) == 1
    brokers.answer()
    assert len(brokers.asked) == 1
    assert len(brokers.asked[0][1].markers) == 4


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_marker_that_is_not_written_goes_to_the_next_leader(error: ErrorCode) -> None:
    brokers = Brokers()
    brokers.end("x", 7, A0, B0)
    brokers.answer(error)
    assert brokers.written == [("x", (B0,))]
    assert not brokers.asked, "not at once"
    brokers.leaders[A0] = 3
    brokers.clock.advance(RETRY_S)
    assert [broker_id for broker_id, _, _ in brokers.asked] == [3]
    brokers.answer()
    assert brokers.written[1:] == [("x", (A0,))]


def test_a_leader_that_does_not_answer_is_asked_again_ever_more_slowly() -> None:
    brokers = Brokers()
    brokers.end("x", 7, A0)
    delay_s = RETRY_S
    for _ in range(8):
        brokers.asked.pop()[2].errback(ChannelLost("gone"))
        brokers.clock.advance(delay_s * 0.99)
        assert not brokers.asked
        brokers.clock.advance(delay_s * 0.02)
        assert brokers.asked
        delay_s = min(2 * delay_s, RETRY_MAX_S)
    assert not brokers.written


def test_a_partition_without_a_leader_waits_for_one() -> None:
    brokers = Brokers()
    brokers.leaders[A0] = -1
    brokers.end("x", 7, A0)
    assert not brokers.asked
    assert brokers.sender.pending == 1
    brokers.leaders[A0] = 2
    brokers.clock.advance(RETRY_S)
    assert brokers.asked[0][0] == 2


def test_a_deleted_partition_needs_no_marker() -> None:
    brokers = Brokers()
    brokers.end("x", 7, A0)
    brokers.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    brokers.leaders[A0] = None
    brokers.clock.advance(RETRY_S)
    assert brokers.written == [("x", (A0,))]


def test_a_transaction_without_partitions_is_complete_at_once() -> None:
    brokers = Brokers()
    brokers.end("x", 7)
    assert brokers.written == [("x", ())]


@pytest.mark.parametrize(
    "error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_a_coordinator_that_was_replaced_stops(error: ErrorCode) -> None:
    brokers = Brokers()
    brokers.end("x", 7, A0)
    brokers.answer(error)
    brokers.clock.advance(RETRY_MAX_S)
    assert not brokers.asked
    assert not brokers.written


def test_a_closed_shard_sends_nothing_more() -> None:
    brokers = Brokers()
    brokers.end("x", 7, A0, A1)
    brokers.end("y", 8, A0)
    brokers.shard.close()
    brokers.answer()
    brokers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    brokers.clock.advance(RETRY_MAX_S)
    assert not brokers.asked
    assert not brokers.written
