"""The admin client's calls about transactions and the producers that write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast_log.clients.admin import records, transactions
from holdfast_log.clients.admin.arguments import (
    A_BROKER,
    AN_OPEN_TRANSACTION,
    NAMES,
    PRODUCER_IDS,
)
from holdfast_log.clients.admin.asking import Asking
from holdfast_log.clients.admin.records import ProducerDescription
from holdfast_log.clients.admin.transactions import (
    FencedProducer,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from holdfast_log.clients.arguments import A_WAIT, PARTITIONS, checked, optional
from holdfast_log.protocol.topic_partition import TopicPartition


class TransactionCalls:
    """A part of `Admin`, which inherits these calls."""

    _asking: Asking

    @checked(states=NAMES, producer_ids=PRODUCER_IDS, open_longer_than_ms=optional(A_WAIT))
    def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, sorted by name; empty filters match all (KIP-664).

        With `open_longer_than_ms` only those whose transaction has been open for longer (KIP-994). Raises
        InvalidRequestError for a state that does not exist.
        """
        return transactions.list_transactions(self._asking, states, producer_ids, open_longer_than_ms)

    @checked(transactional_ids=NAMES)
    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """The state of these transactional ids.

        Raises BrokerError: TRANSACTIONAL_ID_NOT_FOUND for one that no producer has used, and others.
        """
        return transactions.describe_transactions(self._asking, transactional_ids)

    @checked(partitions=PARTITIONS, broker=optional(A_BROKER))
    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent and transactional producers that each partition's leader remembers (KIP-664).

        With `broker`, those of that broker's replicas: one behind its leader may answer what was true a
        moment before. Raises BrokerError: NOT_LEADER_OR_FOLLOWER if it lacks one of the partitions.
        """
        return records.describe_producers(self._asking, partitions, broker)

    @checked(transaction=AN_OPEN_TRANSACTION)
    def abort_transaction(self, transaction: OpenTransaction) -> None:
        """Abort a transaction in one partition, without its coordinator: for one that nobody else ends.

        A transaction that its coordinator knows is ended by its producer, or by its timeout: aborting a part
        of it here breaks it in two. Needs CLUSTER_ACTION or ALTER on the cluster where rights are checked.
        Raises BrokerError: INVALID_PRODUCER_EPOCH if the producer has a later epoch,
        TRANSACTION_COORDINATOR_FENCED if a later coordinator has written, and others.
        """
        transactions.abort_transaction(self._asking, transaction)

    @checked(transactional_ids=NAMES)
    def fence_producers(self, transactional_ids: Iterable[str]) -> Mapping[str, FencedProducer]:
        """Refuse the producers that use these transactional ids now, and abort what they have open (KIP-588).

        A producer that is started with one of the ids afterwards works. Returns the new epochs.
        """
        return transactions.fence_producers(self._asking, transactional_ids)
