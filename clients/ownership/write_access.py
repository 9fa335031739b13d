"""Write access by claims: a producer's sending loop sends its claims on the connections of its records, and
holds back the batches of a partition while the partition is not held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import ConnectionFailedError
from holdfast_log.clients.ownership.claim import OwnershipClaim, error_of
from holdfast_log.clients.ownership.claims import OwnershipClaims
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.clients.ownership.whole_topic import WholeTopic
from holdfast_log.clients.sending.queues import NEVER_MS
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

_NOT_THE_OWNER = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION})
"""The errors for a write that is not the owner's: on a connection that has claimed the partition, and on any
other. A broker that leads again answers them to the owner too, until it knows the owner's connection."""


class ClaimedWriteAccess:
    """Implements `clients.sending.write_access.WriteAccess`. The producer's lock guards it.

    `whole_topic` adds the claims of a producer of a whole topic; None for one of named partitions.
    """

    def __init__(
        self,
        claims: OwnershipClaims,
        on_event: Callable[[OwnershipEvent], object],
        whole_topic: WholeTopic | None = None,
    ) -> None:
        self.claims = claims
        self._whole_topic = whole_topic
        self._on_event = on_event
        self._has_begun = False
        self._has_changed = False
        self._due_ms = 0
        self._may_send: dict[tuple[str, int], bool] = {}
        """What `may_send` has returned since the loop last received something."""

    def calls(self, now_ms: int) -> tuple[list[Call], int | None]:
        """The calls to send now, and when to ask again.

        Asked in every turn of the loop, so the usual case, all held and nothing due, must cost little.
        """
        if self._whole_topic is not None and self._whole_topic.grow():
            self._due_ms = 0
        if now_ms < self._due_ms and self.claims.is_held:
            return [], self._due_ms
        calls, due_ms = self.claims.calls(now_ms), self.claims.next_event_ms(now_ms)
        self._due_ms = NEVER_MS if due_ms is None else due_ms
        return calls, due_ms

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply. False if it does not belong to one of these calls."""
        if not self.claims.handle(reply, now_ms):
            return False
        if self._whole_topic is not None:
            self._whole_topic.grow()
        self._has_changed = True
        self._due_ms = 0
        return True

    def callbacks(self) -> list[Callable[[], object]]:
        """The calls of `on_event` that are due. Asked in every turn of the loop, after replies are handled
        and before batches are chosen."""
        self._may_send.clear()
        return [partial(self._on_event, event) for event in self.claims.take_events()]

    def has_changed(self) -> bool:
        """Whether a reply has been processed since this was last asked."""
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether batches of a partition may be sent. None may before all partitions have been held once.

        Connections and claims change only while the loop waits for the network, not while it chooses
        batches: each partition is checked once in a turn, however many batches it has.
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
        """The error to use for a refused batch. If the broker does not take this producer for the owner, the
        claim is resumed to find out, and the batch will be sent again."""
        claim = self._claim(topic, partition)
        if claim is None or not isinstance(error, BrokerError) or error.code not in _NOT_THE_OWNER:
            return error
        claim.doubt()
        return ConnectionFailedError(
            f"the broker does not know the owner of {topic}-{partition} on this connection: resuming"
        )

    def problem(self) -> Exception | None:
        """Why nothing can be written any more: ProducerFencedError if a partition was lost, or the refusal of
        a claim, once everything granted beside it is released."""
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
