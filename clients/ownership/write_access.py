"""Ownership on the connections of a producer: its sending loop hosts the claims, so that they and the records
go the same way, and what a partition gets is held back while the partition is not held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from clients.connection.link import Call, Reply
from clients.errors import ConnectionFailedError
from clients.ownership.claim import OwnershipClaim, error_of
from clients.ownership.claims import OwnershipClaims
from clients.ownership.events import ClaimState, OwnershipEvent
from clients.sending.queues import NEVER_MS
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.topic_partition import TopicPartition

_STRANGER = ErrorCode.TOPIC_AUTHORIZATION_FAILED
"""What a broker says to one that writes and is not the owner; maybe of a connection that it has restored the
owner without."""


class ClaimedWriteAccess:
    """What the sending loop asks. The producer's lock must be held for all of it."""

    def __init__(self, claims: OwnershipClaims, on_event: Callable[[OwnershipEvent], object]) -> None:
        self.claims = claims
        self._on_event = on_event
        self._has_begun = False
        self._due_ms = 0
        self._may_send: dict[tuple[str, int], bool] = {}
        """What `may_send` has said since the loop last received something."""

    def calls(self, now_ms: int) -> tuple[list[Call], int | None]:
        """What to send now, and when to look again; asked in every turn of the loop, so that the usual case,
        in which all is held and nothing due, costs little."""
        if now_ms < self._due_ms and self.claims.is_held:
            return [], self._due_ms
        calls, due_ms = self.claims.calls(now_ms), self.claims.next_event_ms(now_ms)
        self._due_ms = NEVER_MS if due_ms is None else due_ms
        return calls, due_ms

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was to one of these calls."""
        if not self.claims.handle(reply, now_ms):
            return False
        self._due_ms = 0
        return True

    def callbacks(self) -> list[Callable[[], object]]:
        """What is to be called back, without the lock, because of what has happened; asked in every turn of
        the loop, when replies have been handled and before batches are chosen."""
        self._may_send.clear()
        return [partial(self._on_event, event) for event in self.claims.take_events()]

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether batches for a partition may go. Before all partitions are held none are written.

        Connections come and go, and answers arrive, while the loop waits for the network, and not while it
        chooses batches: each partition is looked at once in a turn, however many batches it has.
        """
        may_send = self._may_send.get((topic, partition))
        if may_send is None:
            may_send = self._may_send[topic, partition] = self._is_held(topic, partition)
        return may_send

    def _is_held(self, topic: str, partition: int) -> bool:
        if not self._has_begun:
            self._has_begun = self.claims.is_held
        claim = self._claim(topic, partition)
        return self._has_begun and claim is not None and claim.is_held

    def judged(self, topic: str, partition: int, error: Exception) -> Exception:
        """What an answer to a batch comes to. Where a broker has called the owner a stranger it is asked
        whether that is so, and meanwhile the batch can be sent again."""
        claim = self._claim(topic, partition)
        if claim is None or not isinstance(error, BrokerError) or error.code is not _STRANGER:
            return error
        claim.doubt()
        return ConnectionFailedError(f"{topic}-{partition} is not owned on this connection: to be resumed")

    def problem(self) -> Exception | None:
        """Why nothing can be written any more: ProducerFencedError where it was lost. A refusal counts when
        what was granted beside it has been let go of."""
        for claim in self.claims.by_resource.values():
            if claim.state is ClaimState.LOST:
                return _fenced(claim)
        return self.claims.error if self.claims.has_ended else None

    def _claim(self, topic: str, partition: int) -> OwnershipClaim | None:
        return self.claims.by_resource.get(TopicPartition(topic, partition))


def _fenced(claim: OwnershipClaim) -> Exception:
    error = error_of(claim)
    if not isinstance(error, BrokerError):
        return error
    message = error.message if error.code is ErrorCode.PRODUCER_FENCED else str(error)
    fenced = error_for(ErrorCode.PRODUCER_FENCED, message)
    fenced.__cause__ = error
    return fenced
