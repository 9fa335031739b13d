"""The port through which the sending loop asks whether a partition may be written.

`clients.ownership.write_access` implements it for exclusive producers. A plain producer has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast_log.clients.connection.link import Call, Reply


class WriteAccess(Protocol):
    """What the sending loop asks in each turn. The producer's lock must be held for every call."""

    def calls(self, now_ms: int) -> tuple[list[Call], int | None]:
        """The calls to send now, and the time in ms at which to ask again; None if only a reply matters."""

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply. False if it does not belong to one of these calls."""

    def callbacks(self) -> list[Callable[[], object]]:
        """The application callbacks that are due, to be called without the lock.

        Asked once in each turn, after the replies are handled and before batches are chosen.
        """

    def has_changed(self) -> bool:
        """Whether a reply has been processed since this was last asked: threads that wait for access must
        look again. Asked once in each turn, after `callbacks`."""

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether batches for a partition may be sent in this turn."""

    def judged(self, topic: str, partition: int, error: Exception) -> Exception:
        """The error to use for a refused batch: a retriable one if the refusal may be a mistake."""

    def problem(self) -> Exception | None:
        """Why nothing can be written any more; None while writing is possible."""
