"""Markers for many partitions are written a few in each turn of the reactor, and answered together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast_log.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from holdfast_log.broker.replication.transaction_markers import TransactionMarkers
from holdfast_log.broker.requests.parts import PART_ROWS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.replication.test_fetches_in_turns import take_turn
from tests.broker.world import World

PARTITIONS = 400
EXISTING = 3


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for index in range(EXISTING):
        world.assign("t", index)
    return world


def markers(counts: Sequence[int]) -> WriteTxnMarkersRequest:
    """Markers of as many transactions as there are counts, each for so many partitions."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(range(count)))],
                coordinator_epoch=0,
            )
            for producer_id, count in enumerate(counts)
        ]
    )


def test_no_turn_writes_markers_of_many_partitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[TopicPartition] = []
    write = TransactionMarkers.write

    def noting(self: TransactionMarkers, producer_id: int, epoch: int, *how: object) -> object:
        _, partitions, _ = how
        assert isinstance(partitions, list)
        written.extend(partitions)
        return write(self, producer_id, epoch, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(TransactionMarkers, "write", noting)
    client = world.client()
    client.ask(markers([PARTITIONS, 2, PARTITIONS]))
    in_turns = [len(written)]
    while not (answers := client.answers()):
        before = len(written)
        take_turn(world)
        in_turns.append(len(written) - before)
    assert sum(in_turns) == len(written) == 2 * PARTITIONS + 2
    assert max(in_turns) <= 2 * PART_ROWS, in_turns
    (answer,) = answers
    assert [each.producer_id for each in answer.markers] == [0, 1, 2]
    for marker, count in zip(answer.markers, (PARTITIONS, 2, PARTITIONS), strict=True):
        (topic,) = marker.topics
        assert [row.partition_index for row in topic.partitions] == list(range(count))
        codes = [row.error_code for row in topic.partitions[EXISTING:]]
        assert set(codes) <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_markers_that_are_written_in_one_turn_are_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WriteTxnMarkersHandler, "parts", ())
    with pytest.raises(AssertionError):
        test_no_turn_writes_markers_of_many_partitions(world, monkeypatch)
