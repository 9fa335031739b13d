"""Has the leaders of partitions write the end markers of transactions (WriteTxnMarkers, KIP-98).

One request at a time goes to each leader; the next one has the markers of all transactions that ended in
between. A marker that a leader has not written is sent again, to the partition's leader at that time, until
it is written or the partition does not exist any more. Writing a marker twice does no harm: the second time
no transaction is open there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.groups.forwarding import SendToBroker
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.shards.effects import Decision
from holdfast_log.coordinator.transactions.effects import MarkersToWrite
from holdfast_log.coordinator.transactions.service import Marked
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

RETRY_S = 0.1
"""Delay before a marker is sent again for the first time; it doubles up to `RETRY_MAX_S`."""
RETRY_MAX_S = 2.0
_ANSWER_MS = 30_000
"""Maximum time in ms for a leader's response. It writes to all in-sync replicas before it responds."""
_PARTITIONS_MAX = 2_000
"""Maximum number of markers in one request."""

_OUTDATED = (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
"""A later coordinator, or a later epoch of the producer, has been there: this coordinator has to stop."""

_Outcomes: TypeAlias = "dict[tuple[int, TopicPartition], ErrorCode]"
"""The error of each marker, by producer id and partition."""


@dataclass(slots=True, eq=False)
class _End:
    """A transaction that has ended, and who has to write its markers."""

    markers: MarkersToWrite
    coordinator_epoch: int
    owner: ShardMarkers


class _Marker(NamedTuple):
    end: _End
    partition: TopicPartition


@dataclass(slots=True, eq=False)
class _Leader:
    """What is to be sent to a broker."""

    waiting: deque[_Marker] = field(default_factory=deque)
    is_busy: bool = False


class MarkerSender:
    """The markers of all shards of a broker. `leader_of` returns the leader of a partition: -1 while it has
    none, None if the partition does not exist."""

    def __init__(self, clock: Clock, leader_of: Callable[[str, int], int | None], send: SendToBroker) -> None:
        self._leader_of = leader_of
        self._send = send
        self._leaders: dict[int, _Leader] = {}
        self._failed: list[_Marker] = []
        self._alarm = Alarm(clock, self._retry)
        self._retry_s = RETRY_S
        self._repeated_log = RepeatedLog(clock)

    def of_shard(self, marked: Marked) -> ShardMarkers:
        """What sends the markers of one shard, and calls `marked` for those that are written."""
        return ShardMarkers(self, marked)

    @property
    def pending(self) -> int:
        """Number of markers that wait to be sent, or to be sent again."""
        return len(self._failed) + sum(len(leader.waiting) for leader in self._leaders.values())

    def stop(self) -> None:
        """Send nothing any more."""
        self._alarm.cancel()
        self._failed.clear()
        for leader in self._leaders.values():
            leader.waiting.clear()

    def add(self, ends: Sequence[_End]) -> None:
        """Send the markers of transactions that have ended."""
        for end in ends:
            if end.markers.partitions:
                self._queue(_Marker(end, partition) for partition in sorted(end.markers.partitions))
            else:
                end.owner.written(end.markers, ())
        self._ask()

    def _queue(self, markers: Iterable[_Marker]) -> None:
        gone: list[_Marker] = []
        for each in markers:
            if each.end.owner.is_closed:
                continue
            leader = self._leader_of(*each.partition)
            if leader is None:
                gone.append(each)
            elif leader < 0:
                self._fail(each)
            else:
                self._leaders.setdefault(leader, _Leader()).waiting.append(each)
        _report(gone)

    def _ask(self) -> None:
        for broker_id, leader in list(self._leaders.items()):
            if leader.is_busy:
                continue
            asked: list[_Marker] = []
            while leader.waiting and len(asked) < _PARTITIONS_MAX:
                each = leader.waiting.popleft()
                if not each.end.owner.is_closed:
                    asked.append(each)
            if not asked:
                if self._leaders.get(broker_id) is leader:
                    del self._leaders[broker_id]
                continue
            leader.is_busy = True
            answer: Deferred[Any] = self._send(broker_id, _request(asked), _ANSWER_MS)
            answer.addCallbacks(_outcomes, _no_outcomes)
            answer.addCallback(self._answered, broker_id, asked)

    def _answered(
        self,
        outcomes: dict[tuple[int, TopicPartition], ErrorCode] | str,
        broker_id: int,
        asked: list[_Marker],
    ) -> None:
        self._leaders[broker_id].is_busy = False
        written: list[_Marker] = []
        for each in asked:
            key = (each.end.markers.producer_id, each.partition)
            error = outcomes if isinstance(outcomes, str) else outcomes.get(key)
            if error is ErrorCode.NONE:
                written.append(each)
            elif error in _OUTDATED:
                self._repeated_log.error(
                    _log,
                    "markers that leaders refuse from this coordinator",
                    "The leader of %s refuses the end of transaction %.200s with %s: a later coordinator has "
                    "been there. This one does not send it again",
                    each.partition, each.end.markers.transactional_id, error,
                )  # fmt: skip
            else:
                self._fail(each)
                self._repeated_log.warning(
                    _log,
                    "markers that could not be written",
                    "Broker %d has not written the end of transaction %.200s in %s (%s); it is sent again",
                    broker_id, each.end.markers.transactional_id, each.partition, error,
                )  # fmt: skip
        if written:
            self._retry_s = RETRY_S
        _report(written)
        self._ask()

    def _fail(self, marker: _Marker) -> None:
        self._failed.append(marker)
        if not self._alarm.is_set:
            self._alarm.set(self._retry_s)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _retry(self) -> None:
        failed, self._failed = self._failed, []
        self._queue(failed)
        self._ask()


class ShardMarkers:
    """The markers of one shard (`coordinator.shards.effects.Claimer`)."""

    def __init__(self, sender: MarkerSender, marked: Marked) -> None:
        self._sender = sender
        self._marked = marked
        self.is_closed = False

    def claim(self, claims: Sequence[MarkersToWrite], decision: Decision) -> Deferred[None]:
        """Begin to send markers. Producers need not wait for them."""
        self._sender.add([_End(each, decision.leader_epoch, self) for each in claims])
        return succeed(None)

    def close(self) -> None:
        """Stop: the next coordinator sends what is left."""
        self.is_closed = True

    def written(self, markers: MarkersToWrite, partitions: Sequence[TopicPartition]) -> None:
        if not self.is_closed:
            self._marked(markers, partitions)


def _report(markers: Iterable[_Marker]) -> None:
    """Tell who waits for them that partitions have the markers, or do not exist any more."""
    found: dict[_End, list[TopicPartition]] = {}
    for end, partition in markers:
        found.setdefault(end, []).append(partition)
    for end, partitions in found.items():
        end.owner.written(end.markers, partitions)


def _request(markers: Iterable[_Marker]) -> WriteTxnMarkersRequest:
    found: dict[_End, dict[str, list[int]]] = {}
    for end, (topic, index) in markers:
        found.setdefault(end, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=end.markers.producer_id,
                producer_epoch=end.markers.producer_epoch,
                transaction_result=end.markers.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                coordinator_epoch=end.coordinator_epoch,
            )
            for end, topics in found.items()
        ]
    )


def _outcomes(response: WriteTxnMarkersResponse) -> _Outcomes:
    return {
        (marker.producer_id, TopicPartition(topic.name, row.partition_index)): ErrorCode(row.error_code)
        for marker in response.markers
        for topic in marker.topics
        for row in topic.partitions
    }


def _no_outcomes(failure: Failure) -> str:
    return failure.getErrorMessage()
