"""The port through which the sending loop takes part in transactions.

`clients.transactions.machine` implements it for producers with a `transactional.id`. Others have none.
"""

from __future__ import annotations

from typing import Protocol

from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.sending.producer_id import ProducerId


class TransactionPort(Protocol):
    """What the sending loop asks in each turn. The producer's lock must be held for every call."""

    transactional_id: str
    producer_id: ProducerId
    """The id and epoch with which all records are stamped."""

    def calls(self, now_ms: int) -> tuple[list[Call], int | None]:
        """The calls to send now, and the time in ms at which to ask again; None if only a reply matters."""

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply. False if it does not belong to one of these calls."""

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether the open transaction has a partition; if not, it is added from here on."""

    def failed(self, error: Exception) -> None:
        """A record of the open transaction has failed for good."""

    def abandons(self) -> Exception | None:
        """Why no record that waits may be sent any more; None if they may: the transaction is to be
        aborted."""

    def has_changed(self) -> bool:
        """Whether something has happened since this was last asked: threads that wait must look again."""

    def problem(self) -> Exception | None:
        """Why nothing can be written any more; None while writing is possible."""
