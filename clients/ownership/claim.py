"""One resource that is claimed, waited for, held, resumed and released: the machine, without any network.

`clients.ownership.claims` sends the requests that a claim is due to send and passes on the answers. A grant
belongs to a connection: `is_held` is true only while the connection on which the grant was made or resumed is
the one on which the next request would be sent.

A held claim is renewed, since a broker takes the resource from an owner that is silent for a session timeout.
A claim whose connection breaks is DETACHED, and resumed on the next connection. A claim that is LOST stays
lost: the application decides whether to make another one.

The phases and the transitions between them are in `clients.ownership.claim_states`.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.connection.link import Call
from holdfast_log.clients.errors import RequestTimeoutError, is_retriable, with_cause
from holdfast_log.clients.ownership.claim_requests import NO_GRANT, RequestKind, ResourceRequest
from holdfast_log.clients.ownership.claim_states import (
    REQUEST_IN,
    STATE_OF,
    ClaimInput,
    ClaimPhase,
    next_phase,
)
from holdfast_log.clients.ownership.deciders import Decider
from holdfast_log.clients.ownership.events import ENDED, ClaimState, OwnedResource, OwnershipEvent
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import IF_FREE, ResourceStanding

FOR_EVER = -1
"""The `wait_ms` of a claim that waits without a limit."""
_FENCED = (ErrorCode.OWNERSHIP_FENCED, ErrorCode.PRODUCER_FENCED)
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.OWNERSHIP_DETACHED,
)
_WAITED_MS_MAX = 2**31 - 1
_WANTED = (ClaimPhase.UNCLAIMED, ClaimPhase.CLAIMING)
_RELEASED = (ClaimPhase.RELEASING, ClaimPhase.PROBING)


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """All times in ms. `held_wait_ms` and `queued_wait_ms` are how long the broker may hold back the answer
    to a Renew of a held or a queued claim; 0 where answers to other requests must not wait behind it."""

    session_timeout_ms: int
    retry_backoff_ms: int
    held_wait_ms: int = 0
    queued_wait_ms: int = 0

    def bound_ms(self, told_ms: int) -> int:
        """How long after a request the broker keeps the owner's session at least, by the `session_bound_ms`
        that it has answered; -1 for an older broker, which does not say."""
        if self.held_wait_ms == 0 or told_ms < 0:
            # A broker shortens the session only when it answers a Renew that it has held back.
            return self.session_timeout_ms
        return min(self.session_timeout_ms, told_ms)


class OwnershipClaim:
    """The claim of one resource.

    `generation` is what the claim names. `wait_ms` is how long it may wait to be granted: 0 for not at all,
    FOR_EVER for no limit. Only a claim with the generation IF_FREE waits; any other takes the resource.
    """

    def __init__(
        self,
        connection: Connection,
        decider: Decider,
        resource: OwnedResource,
        settings: ClaimSettings,
        *,
        generation: int = IF_FREE,
        wait_ms: int = 0,
    ) -> None:
        self.resource = resource
        self.decider = decider
        self.grant: ResourceStanding | None = None
        """What was granted, with `generation`, `fence_offset` and `leader_epoch`; kept after it is lost."""
        self.error: Exception | None = None
        """Why it was refused or lost."""
        self.last_error: Exception | None = None
        """Why the last attempt failed, if another attempt may succeed."""
        self.valid_until_ms = 0
        """Time, by the client's clock, before which the broker does not end the owner's session for want of a
        request. Another client's claim with a generation, and an administrator, may end it earlier."""
        self.events: list[OwnershipEvent] = []
        self.may_queue = wait_ms != 0 and generation == IF_FREE
        self.queues_alone = False
        """Whether the claim is sent in a request of its own, which may wait in the broker's queue. Stays true
        once a claim together with others was refused, or this one was the only one to claim."""
        self._phase = ClaimPhase.UNCLAIMED
        self._connection = connection
        self._settings = settings
        self._bound_ms = settings.session_timeout_ms
        self._named_generation = generation
        self._wait_ms = wait_ms if self.may_queue else 0
        self._wait_until_ms: int | None = None
        self._release_until_ms: int | None = None
        self._node = NO_NODE
        self._conversation: Conversation | None = None
        self._position = 0
        self._queued_at = NO_NODE
        """The broker in whose queue the claim waited last."""
        self._queued_since_ms = 0
        self._call: Call | None = None
        self._sent_at_ms = 0
        self._not_before_ms = 0
        self._early_answers = 0
        self._is_incomplete = False
        self._sent_kind: RequestKind | None = None

    # The phase ----------------------------------------------------------------------------------------

    @property
    def phase(self) -> ClaimPhase:
        """Where the claim stands."""
        return self._phase

    def _enter(self, happened: ClaimInput) -> ClaimPhase:
        """Move to the phase that the table gives for an input; returns it. Only this changes the phase."""
        self._phase = next_phase(self._phase, happened)
        return self._phase

    @property
    def state(self) -> ClaimState:
        """Where the claim stands, as an application sees it."""
        return STATE_OF[self._phase]

    @property
    def has_ended(self) -> bool:
        """Whether the claim is lost, refused or released."""
        return self.state in ENDED

    @property
    def is_held(self) -> bool:
        """Whether the next request to the broker is sent on the connection that owns the resource."""
        return self._phase is ClaimPhase.HELD and self._is_attached() and not self._is_incomplete

    @property
    def renewal_interval_ms(self) -> int:
        """Longest time between two requests about the resource."""
        return self._bound_ms // 3

    def is_valid(self, now_ms: int) -> bool:
        """Whether it is held, and the broker has received a request so recently that the session lasts."""
        return self.is_held and now_ms < self.valid_until_ms

    def _is_attached(self) -> bool:
        return (
            self._conversation is not None
            and self.decider.node() == self._node
            and self._connection.conversation(self._node) is self._conversation
        )

    # For the host -------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """A broker refused a record because it does not know the sender as owner: resume, to find out."""
        self._leave_connection(ClaimInput.DOUBTED)

    def ask_whole_grant(self) -> None:
        """Resume a grant that is in no doubt, because the answer says more than that of a renewal.

        `is_held` is false until it has come; the state stays HELD, and no event is reported.
        """
        self._is_incomplete = True
        self._not_before_ms = 0

    def release(self) -> None:
        """Release the resource; ends at once if no broker has this claim."""
        was = self._phase
        now = self._enter(ClaimInput.RELEASE)
        if now is was:
            return
        if now is ClaimPhase.RELEASED:
            self._end()
            return
        self._not_before_ms = 0
        if was is not ClaimPhase.CLAIMING:
            self._call = None  # A Renew, whose answer no longer matters and may take long.

    def waits_for(self) -> str:
        """Why it is not held yet, in words."""
        if self.last_error is not None:
            return str(self.last_error)
        if self._phase is ClaimPhase.QUEUED:
            return f"another owner has {self.resource}"
        return self._connection.standing(self._node) or self._connection.standing(ANY_NODE)

    def abandon(self) -> None:
        """End without a request, because the connection is about to close."""
        was = self._phase
        if self._enter(ClaimInput.ABANDON) is not was:
            self._end()

    # Requests -----------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Process a broken connection and a deadline that has passed. Call this before `due_request`.

        A release that no broker confirms within a session timeout ends: by then the broker has received
        nothing for so long that it has released the resource itself.
        """
        if self._phase in _RELEASED:
            if self._release_until_ms is None:
                self._release_until_ms = now_ms + self._settings.session_timeout_ms
            elif now_ms >= self._release_until_ms:
                self.abandon()
        if self._phase in (ClaimPhase.HELD, ClaimPhase.QUEUED) and not self._is_attached():
            self._leave_connection(ClaimInput.CUT)
        if self._wait_ms > 0 and self._wait_until_ms is None:
            self._wait_until_ms = now_ms + self._wait_ms
        if self._phase in _WANTED and self._call is None and self._has_wait_expired(now_ms):
            self._expire(self.last_error)

    @property
    def due_request(self) -> RequestKind | None:
        """The request to send next; None while an answer is awaited, and after the end."""
        if self._call is not None:
            return None
        if self._phase is ClaimPhase.HELD and self._is_incomplete:
            return RequestKind.RESUME
        return REQUEST_IN.get(self._phase)

    @property
    def due_ms(self) -> int:
        """When to send the next request; may be in the past."""
        return self._not_before_ms

    @property
    def expires_at_ms(self) -> int | None:
        """When `advance` will end the wait or the release."""
        if self._phase in _WANTED and self._call is None:
            return self._wait_until_ms
        return self._release_until_ms if self._phase in _RELEASED else None

    def request(self, now_ms: int, *, is_alone: bool) -> ResourceRequest:
        """What to send now. A claim may wait in the queue only if it `is_alone` in its request."""
        kind = self._sent_kind = self.due_request
        assert kind is not None
        generation, incarnation = self._named_generation, NO_GRANT
        if self.grant is not None:
            generation, incarnation = self.grant.generation, self.grant.incarnation
        wait_ms = waited_ms = 0
        if kind is RequestKind.CLAIM:
            self.queues_alone = self.queues_alone or (is_alone and self.may_queue)
            wait_ms = self._left_to_wait_ms(now_ms) if self.queues_alone else 0
            if wait_ms and self._queued_at not in (NO_NODE, self.decider.node()):
                waited_ms = min(now_ms - self._queued_since_ms, _WAITED_MS_MAX)
        elif kind is RequestKind.RENEW:
            settings = self._settings
            is_held = self._phase is ClaimPhase.HELD
            longest_ms = settings.held_wait_ms if is_held else settings.queued_wait_ms
            wait_ms = min(longest_ms, self.renewal_interval_ms)
        return ResourceRequest(kind, self.resource, generation, incarnation, wait_ms, waited_ms)

    def sent(self, call: Call, now_ms: int) -> None:
        """The request was sent in this call."""
        self._enter(ClaimInput.SENT)
        self._call = call
        self._sent_at_ms = now_ms

    def _left_to_wait_ms(self, now_ms: int) -> int:
        return self._wait_ms if self._wait_until_ms is None else max(self._wait_until_ms - now_ms, 1)

    def _has_wait_expired(self, now_ms: int) -> bool:
        return self._wait_until_ms is not None and self._wait_until_ms <= now_ms

    # Answers ------------------------------------------------------------------------------------------

    def awaits(self, call: Call) -> bool:
        """Whether the answer to this call still matters to the claim."""
        return self._call is call

    def answered(
        self, standing: ResourceStanding, node: int, conversation: Conversation | None, now_ms: int
    ) -> None:
        """Process the broker's answer, which came in this conversation."""
        self._call = None
        self._node, self._conversation = node, conversation
        error = error_for(standing.error_code, standing.error_message)
        was = self._phase
        match self._meaning(standing, error):
            case ClaimInput.GRANTED:
                self._take_grant(standing, now_ms)
            case ClaimInput.QUEUED:
                self._take_place(standing, now_ms)
            case ClaimInput.NOT_CLAIMED:
                self._enter(ClaimInput.NOT_CLAIMED)
                self.queues_alone = self.queues_alone or error.code is ErrorCode.RESOURCE_OWNED
            case ClaimInput.TIMED_OUT:
                self._time_out(error, now_ms)
            case ClaimInput.MOVED:
                if was in _RELEASED or error.code is not ErrorCode.OWNERSHIP_DETACHED:
                    self.decider.forget()
                self._leave_connection(ClaimInput.MOVED)
                self._pause(error, now_ms)
            case ClaimInput.BUSY:
                self._enter(ClaimInput.BUSY)
                if was in _RELEASED and error.code is not ErrorCode.CLAIM_QUEUED:
                    self.decider.forget()
                self._pause(error, now_ms)
            case final:
                if self._enter(final) is not ClaimPhase.PROBING:
                    self._end(error, standing)

    def _meaning(self, standing: ResourceStanding, error: BrokerError) -> ClaimInput:
        """The input that an answer stands for."""
        is_releasing = self._phase in _RELEASED
        match error.code:
            case ErrorCode.NONE if is_releasing and standing.incarnation == NO_GRANT:
                return ClaimInput.RELEASED
            case ErrorCode.NONE:
                return ClaimInput.GRANTED
            case ErrorCode.CLAIM_QUEUED if is_releasing and standing.position <= 0:
                return ClaimInput.BUSY  # First in the queue, and its grant is being committed.
            case ErrorCode.CLAIM_QUEUED:
                return ClaimInput.QUEUED
            case ErrorCode.REQUEST_TIMED_OUT:
                return ClaimInput.TIMED_OUT
            case ErrorCode.OPERATION_NOT_ATTEMPTED if self._phase is ClaimPhase.CLAIMING:
                return ClaimInput.NOT_CLAIMED
            case ErrorCode.RESOURCE_OWNED if self._may_still_queue():
                return ClaimInput.NOT_CLAIMED
            case code if code in _FENCED:
                return ClaimInput.UNKNOWN if self.grant is None else ClaimInput.FENCED
            case code if code in _MOVED:
                return ClaimInput.MOVED
        return ClaimInput.BUSY if error.retriable else ClaimInput.FAILED

    def _may_still_queue(self) -> bool:
        return self._phase is ClaimPhase.CLAIMING and self.may_queue and not self.queues_alone

    def not_answered(self, error: Exception, now_ms: int) -> None:
        """Record that no answer will come."""
        self._call = None
        if not is_retriable(error):
            self.fail(error)
            return
        self.decider.forget()
        self._leave_connection(ClaimInput.CUT)
        self._pause(error, now_ms)

    def fail(self, error: Exception) -> None:
        """Record a permanent error."""
        was = self._phase
        if self._enter(ClaimInput.FAILED) is not was:
            self._end(error)

    def _take_grant(self, standing: ResourceStanding, now_ms: int) -> None:
        was = self._phase
        self.grant = standing
        if self._enter(ClaimInput.GRANTED) is not ClaimPhase.HELD:
            return
        if self._sent_kind is RequestKind.RESUME:
            self._is_incomplete = False
        self.last_error = None
        self._bound_ms = self._settings.bound_ms(standing.session_bound_ms)
        self.valid_until_ms = self._sent_at_ms + self._bound_ms
        is_news = was is not ClaimPhase.HELD or standing.is_contended
        if is_news:
            self._report(standing, is_resumed=was is ClaimPhase.DETACHED)
        self._renew_later(now_ms, self._settings.held_wait_ms, self.renewal_interval_ms, is_news=is_news)

    def _take_place(self, standing: ResourceStanding, now_ms: int) -> None:
        was = self._phase
        if self._enter(ClaimInput.QUEUED) is not ClaimPhase.QUEUED:
            return
        is_news = was is not ClaimPhase.QUEUED or self._position != standing.position
        if was is not ClaimPhase.QUEUED:
            if self._queued_at in (NO_NODE, self._node):
                self._queued_since_ms = now_ms  # A new place. Another broker keeps the one from before it.
            self._queued_at = self._node
        self._position = standing.position
        self.last_error = None
        if is_news:
            self._report(standing)
        self._renew_later(
            now_ms, self._settings.queued_wait_ms, self._settings.retry_backoff_ms, is_news=is_news
        )

    def _renew_later(self, now_ms: int, wait_ms: int, pause_ms: int, *, is_news: bool) -> None:
        """Renew at once if the broker may hold back the answer for `wait_ms`, else after a pause."""
        gap_ms = pause_ms
        if wait_ms:
            # The broker answers the first Renew at once, since it has reported nothing yet. If it answers the
            # next ones at once too, though they report nothing new, they must not keep it busy.
            is_early = not is_news and now_ms < self._sent_at_ms + self._settings.retry_backoff_ms
            self._early_answers = self._early_answers + 1 if is_early else 0
            gap_ms = self._settings.retry_backoff_ms if self._early_answers > 1 else 0
        self._not_before_ms = max(now_ms, self._sent_at_ms + min(gap_ms, self.renewal_interval_ms))

    def _time_out(self, error: BrokerError, now_ms: int) -> None:
        was = self._phase
        now = self._enter(ClaimInput.TIMED_OUT)
        if now is ClaimPhase.RELEASED:
            self._end()
        elif was is ClaimPhase.CLAIMING:
            self._position = 0
        elif was is ClaimPhase.QUEUED and self._has_wait_expired(now_ms):
            self._expire(error)
        else:
            if now is ClaimPhase.RELEASING:
                self.decider.forget()
            self._pause(error, now_ms)

    def _pause(self, error: Exception, now_ms: int) -> None:
        self.last_error = error
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms

    # Consequences -------------------------------------------------------------------------------------

    def _leave_connection(self, happened: ClaimInput) -> None:
        """Drop the state tied to the connection: a grant will be resumed, a queued claim sent again."""
        was = self._phase
        if self._enter(happened) is was:
            return
        self._call = None
        self._conversation = None
        self._not_before_ms = 0
        if was is ClaimPhase.HELD:
            self._report(self.grant)

    def _expire(self, because: Exception | None) -> None:
        waited = f"{self.resource}: not granted within {self._wait_ms} ms"
        error = RequestTimeoutError(with_cause(waited, self.waits_for()))
        error.__cause__ = because
        self._enter(ClaimInput.WAIT_EXPIRED)
        self._end(error)

    def _end(self, error: Exception | None = None, standing: ResourceStanding | None = None) -> None:
        self._call = None
        self._conversation = None
        if self._phase is ClaimPhase.RELEASED:
            self._report(None)
        else:
            self.error = error
            self._report(standing)

    def _report(self, standing: ResourceStanding | None, *, is_resumed: bool = False) -> None:
        event = OwnershipEvent(self.resource, self.state, is_resumed=is_resumed, error=self.error)
        self.events.append(event if standing is None else event.with_standing(standing))


def error_of(claim: OwnershipClaim) -> Exception:
    """The error to raise for a claim that has ended."""
    if claim.error is not None:
        return claim.error
    return BrokerError(ErrorCode.OWNERSHIP_FENCED, f"{claim.resource} was released")
