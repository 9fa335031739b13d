"""Writes the end markers of transactions into the partitions that this broker leads (KIP-98).

A marker is written by the broker itself, for the transaction's coordinator: no owner of the partition
stands in its way, and it is no write of a stranger. It is answered once every in-sync replica has it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.replication.appends import ACKS_ALL, Append
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


class MarkersApplied(Protocol):
    def __call__(
        self, partition_index: int, producer_id: int, producer_epoch: int, is_commit: bool, /
    ) -> None:
        """Note that a marker was appended to a partition of `__consumer_offsets`, in the same turn. A
        replay of the partition sees the marker too."""
        ...


def _nobody(partition_index: int, producer_id: int, producer_epoch: int, is_commit: bool, /) -> None:
    """Takes the place of the groups' coordinator."""


class TransactionMarkers:
    """Writes markers. `applied` is called with those in `__consumer_offsets`; set it before any request."""

    def __init__(self, replicas: Replicas) -> None:
        self.applied: MarkersApplied = _nobody
        self._replicas = replicas

    def write(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndMarker,
        partitions: Sequence[TopicPartition],
        timeout_ms: int,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Append a marker to each of the partitions, which are different ones. Fires with their errors once
        all of them are committed or have failed, at the latest after `timeout_ms`. Never fails.

        The errors are those of an append with acks=all; INVALID_PRODUCER_EPOCH for an epoch below the
        producer's, TRANSACTION_COORDINATOR_FENCED for a coordinator that has been replaced.
        """
        now_ms = self._replicas.date_ms()
        appends = [
            Append(
                topic, index,
                memoryview(end_marker_batch(producer_id, producer_epoch, marker, now_ms)),
                AppendOrigin.COORDINATOR,
            )
            for topic, index in partitions
        ]  # fmt: skip
        self._replicas.append(appends, ACKS_ALL, None)
        for append in appends:
            if append.result is not None and append.topic == OFFSETS_TOPIC:
                self.applied(append.index, producer_id, producer_epoch, marker.is_commit)
        return self._settled(appends, timeout_ms)

    def without_coordinator(
        self, producer_id: int, marker: EndMarker, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        """Those of the partitions that have not seen the coordinator in whose name the marker is, nor a later
        one, end a transaction of this producer. Where none has ended one, administrators' tools say epoch 0.
        Partitions that this broker does not lead are left to `write`, which knows their error."""
        return [each for each in partitions if self._is_later(each, producer_id, marker.coordinator_epoch)]

    def _is_later(self, name: TopicPartition, producer_id: int, coordinator_epoch: int) -> bool:
        try:
            partition = self._replicas.partition(name.topic, name.partition)
            partition.leadership()
        except BrokerError:
            return False
        entry = partition.log.producers.get(producer_id)
        return coordinator_epoch > (0 if entry is None else max(entry.coordinator_epoch, 0))

    def _settled(
        self, appends: Sequence[Append], timeout_ms: int
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        replicas = self._replicas
        missing: dict[Hashable, Append] = {
            append.topic_partition: append for append in appends if not replicas.is_settled(append, ACKS_ALL)
        }
        if not missing:
            return succeed(_errors(appends))
        done: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()

        def check(key: Hashable) -> bool:
            append = missing.get(key)
            if append is not None and replicas.is_settled(append, ACKS_ALL):
                del missing[key]
                if not missing:
                    done.callback(_errors(appends))
            return not missing

        def expire() -> None:
            late = dict.fromkeys(append.topic_partition for append in missing.values())
            done.callback(_errors(appends) | dict.fromkeys(late, ErrorCode.REQUEST_TIMED_OUT))

        replicas.writers.park(list(missing), timeout_ms, check, expire)
        return done


def _errors(appends: Sequence[Append]) -> dict[TopicPartition, ErrorCode]:
    return {
        append.topic_partition: ErrorCode.NONE if append.error is None else append.error.code
        for append in appends
    }
