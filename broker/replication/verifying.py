"""Asks for a transaction's coordinator before a batch begins the transaction in a partition (KIP-890).

A producer's late batch, or one that was never announced to the coordinator, would begin a transaction that
nobody ends: readers of committed records would stop there. So the coordinator confirms that the partition
belongs to the producer's open transaction. Once the transaction is open in the partition, nobody is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.protocol.batches import BatchHeader, read_header
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

Verdicts: TypeAlias = Mapping[TopicPartition, ErrorCode]

_ASKED_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)


class TransactionVerifier(Protocol):
    """Knows the transactions of all producers."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> Deferred[Verdicts]:
        """Fires with a verdict for each partition: NONE if it belongs to the producer's open transaction. An
        error of a coordinator that cannot be asked now means that the producer has to try again."""
        ...


class NoCoordinator:
    """Confirms every transaction. Stands where no coordinator can be asked."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> Deferred[Verdicts]:
        return succeed(dict.fromkeys(partitions, ErrorCode.NONE))


class Verifying:
    """Has the appends of requests confirmed that would begin transactions. `verifier` may be set until the
    first request."""

    def __init__(self, replicas: Replicas) -> None:
        self.verifier: TransactionVerifier = NoCoordinator()
        self._replicas = replicas

    def begin(self, transactional_id: str, appends: Sequence[Append]) -> list[Deferred[None]]:
        """Ask about the appends that would begin a transaction, and note the verdicts with them. Returns what
        has to be done before they are carried out; nothing where nobody has to be asked."""
        wanted: dict[tuple[int, int], list[Append]] = {}
        for append in appends:
            header = self._beginning(append)
            if header is not None:
                wanted.setdefault((header.producer_id, header.producer_epoch), []).append(append)
        return [
            self.verifier.verify(
                transactional_id, producer_id, epoch, [append.topic_partition for append in theirs]
            ).addCallback(partial(_note, theirs))
            for (producer_id, epoch), theirs in wanted.items()
        ]

    def _beginning(self, append: Append) -> BatchHeader | None:
        """The header of an append that would begin a transaction in its partition; the append then knows its
        producer's last marker there. None for any other, and for one that will be refused anyway."""
        partition = self._replicas.find(append.topic, append.index)
        if partition is None:
            return None
        try:
            header = read_header(append.records)
        except BrokerError:
            return None
        producers = partition.log.producers
        if not header.is_transactional or producers.is_in_transaction(header.producer_id):
            return None
        append.verified_at = producers.last_marker_of(header.producer_id)
        return header


def _note(appends: Sequence[Append], verdicts: Verdicts) -> None:
    for append in appends:
        code = verdicts.get(append.topic_partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if code == ErrorCode.NONE:
            continue
        append.verified_at = None
        if code in _ASKED_AGAIN:
            # Clients that know no verification repeat a batch after this error, without a look at metadata.
            append.unverified = BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the coordinator could not confirm the transaction ({code.name}): send the batch again",
            )
        else:
            append.unverified = BrokerError(code, "the coordinator does not confirm the transaction")
