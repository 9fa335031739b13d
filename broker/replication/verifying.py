"""Asks for a transaction's coordinator before a batch begins the transaction in a partition (KIP-890).

A producer's late batch, or one that was never announced to the coordinator, would begin a transaction that
nobody ends: readers of committed records would stop there. So the coordinator confirms that the partition
belongs to the producer's open transaction, or adds the partition to it. Once the transaction is open in the
partition, nobody is asked.

A producer that gets a new epoch with each transaction begins the next one while the coordinator still has
markers of the last one written. The leader asks again itself until they are there, for a short time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.settings import SETTINGS
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import Clock, now_ms
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


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class AddingLimits:
    """For how long a leader asks again to add partitions to a transaction, and how long it waits between."""

    retry_max_ms: Annotated[int, "add.partitions.to.txn.retry.backoff.max.ms"]
    retry_backoff_ms: Annotated[int, "add.partitions.to.txn.retry.backoff.ms"]


class TransactionVerifier(Protocol):
    """Knows the transactions of all producers."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Deferred[Verdicts]:
        """Fires with a verdict for each partition: NONE if it belongs to the producer's open transaction. An
        error of a coordinator that cannot be asked now means that the producer has to try again. `adds`: the
        partitions are added to the transaction, which begins if none is open."""
        ...


class Verifying:
    """Has the appends of requests confirmed that would begin transactions.

    `verifier` is set before the first request that begins one; a broker that has none refuses it.
    """

    def __init__(self, replicas: Replicas, clock: Clock, limits: AddingLimits) -> None:
        self.verifier: TransactionVerifier | None = None
        self._replicas = replicas
        self._clock = clock
        self._limits = limits

    def begin(
        self, transactional_id: str, appends: Sequence[Append], *, adds: bool = False
    ) -> list[Deferred[None]]:
        """Ask about the appends that would begin a transaction, and note the verdicts with them. `adds`: have
        their partitions added to the transaction. Returns what has to be done before they are carried out;
        nothing where nobody has to be asked."""
        wanted: dict[tuple[int, int], list[Append]] = {}
        for append in appends:
            header = self._beginning(append)
            if header is not None:
                wanted.setdefault((header.producer_id, header.producer_epoch), []).append(append)
        if not wanted:
            return []
        if self.verifier is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker knows no coordinators")
        until_ms = now_ms(self._clock) + self._limits.retry_max_ms
        return [
            _Question(self, transactional_id, producer_id, epoch, theirs, until_ms if adds else None).ask()
            for (producer_id, epoch), theirs in wanted.items()
        ]

    def _beginning(self, append: Append) -> BatchHeader | None:
        """The header of an append that would begin a transaction in its partition. None for any other, and
        for one that will be refused anyway."""
        partition = self._replicas.find(append.topic, append.index)
        if partition is None:
            return None
        try:
            header = read_header(append.records)
        except BrokerError:
            return None
        if not header.is_transactional or partition.log.producers.continues_transaction(header):
            return None
        return header

    def note_markers(self, producer_id: int, appends: Sequence[Append]) -> None:
        """Note the producer's last marker in each log, just before its coordinator is asked: one that comes
        later makes the answer worthless."""
        for append in appends:
            partition = self._replicas.find(append.topic, append.index)
            if partition is not None:
                append.verified_at = partition.log.producers.last_marker_of(producer_id)

    def later(self, question: _Question) -> Deferred[None] | None:
        """Ask once more after a pause; None if that would be too late."""
        backoff_ms = self._limits.retry_backoff_ms
        if question.until_ms is None or now_ms(self._clock) + backoff_ms > question.until_ms:
            return None
        asked: Deferred[None] = Deferred()
        self._clock.callLater(backoff_ms / 1000, lambda: question.ask().chainDeferred(asked))
        return asked


@dataclass(frozen=True, slots=True)
class _Question:
    """What a coordinator is asked about the appends of one producer. `until_ms`: ask it to add their
    partitions, and do so again until this time of the clock; None: ask whether the transaction has them."""

    verifying: Verifying
    transactional_id: str
    producer_id: int
    producer_epoch: int
    appends: Sequence[Append]
    until_ms: int | None

    def ask(self) -> Deferred[None]:
        verifier = self.verifying.verifier
        assert verifier is not None
        self.verifying.note_markers(self.producer_id, self.appends)
        partitions = [append.topic_partition for append in self.appends]
        return verifier.verify(
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            partitions,
            adds=self.until_ms is not None,
        ).addCallback(self._answered)

    def _answered(self, verdicts: Verdicts) -> Deferred[None] | None:
        if ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values():
            again = self.verifying.later(self)
            if again is not None:
                return again
        _note(self.appends, verdicts)
        return None


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
        elif code == ErrorCode.PRODUCER_FENCED:
            # As Kafka: Produce has never told of fenced producers in the newer word.
            append.unverified = BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH, "the coordinator knows a newer epoch of the producer"
            )
        else:
            append.unverified = BrokerError(code, "the coordinator does not confirm the transaction")
