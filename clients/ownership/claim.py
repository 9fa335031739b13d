"""One resource that is claimed, waited for, held, resumed and let go of: the machine, without any network.

It says what it has to `ask`, and takes in what it was `answered`; `clients.ownership.claims` carries that to
and fro. An owner is a connection: `is_held` is only so while the connection on which the grant was made, or
resumed, is the one on which the host's next request would go.

While it is held it is renewed: a silent owner loses what it has. A connection that breaks makes it DETACHED,
and it is resumed on the next. What is LOST stays lost: whether to take it again, by another claim, is for the
application to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from clients.connection.connection import Connection
from clients.connection.conversation import Conversation
from clients.connection.link import Call
from clients.connection.metadata import NO_NODE
from clients.errors import RequestTimeoutError, is_retriable
from clients.ownership.claim_requests import NO_GRANT, RequestKind, ResourceRequest
from clients.ownership.deciders import Decider
from clients.ownership.events import ENDED, ClaimState, OwnedResource, OwnershipEvent
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.ownership import IF_FREE, ResourceStanding

FOR_EVER = -1
"""The `wait_ms` of one that waits as long as it lives."""
_FENCED = (ErrorCode.OWNERSHIP_FENCED, ErrorCode.PRODUCER_FENCED)
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.OWNERSHIP_DETACHED,
)


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """All times in ms. A Renew may wait at the broker for `held_wait_ms` while the resource is held, and for
    `queued_wait_ms` while it is waited for: 0 where other answers must not wait behind it."""

    session_timeout_ms: int
    retry_backoff_ms: int
    held_wait_ms: int = 0
    queued_wait_ms: int = 0

    @property
    def third_ms(self) -> int:
        """How often an owner is heard at least."""
        return self.session_timeout_ms // 3


class OwnershipClaim:
    """A resource's. `generation` is what the claim names, `wait_ms` how long it may wait to be granted: 0 is
    not at all, FOR_EVER as long as it lives. Only a claim that takes from nobody waits."""

    def __init__(
        self,
        connection: Connection,
        home: Decider,
        resource: OwnedResource,
        settings: ClaimSettings,
        *,
        generation: int = IF_FREE,
        wait_ms: int = 0,
    ) -> None:
        self.resource = resource
        self.home = home
        self.state = ClaimState.CLAIMING
        self.grant: ResourceStanding | None = None
        """What was granted, with `generation`, `fence_offset` and `leader_epoch`; also after it is lost."""
        self.error: Exception | None = None
        """Why it was refused or lost."""
        self.last_error: Exception | None = None
        """Why the last attempt brought nothing, where that may pass."""
        self.valid_until_ms = 0
        """Until when the broker, by this clock, does not take the owner for dead; without a pause in between
        it cannot have granted it to another for silence."""
        self.events: list[OwnershipEvent] = []
        self.may_wait = wait_ms != 0 and generation == IF_FREE
        self.must_queue = False
        """Whether a claim among others was refused, so that it has to stand in the queue by itself."""
        self._connection = connection
        self._settings = settings
        self._named_generation = generation
        self._wait_ms = wait_ms if self.may_wait else 0
        self._wait_until_ms: int | None = None
        self._release_until_ms: int | None = None
        self._node = NO_NODE
        self._conversation: Conversation | None = None
        self._position = 0
        self._call: Call | None = None
        self._asked_at_ms = 0
        self._not_before_ms = 0
        self._early_answers = 0
        self._must_look = False

    # What hosts ask -----------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether nothing will come of it any more."""
        return self.state in ENDED

    @property
    def is_held(self) -> bool:
        """Whether the next request to the broker goes out on the connection that owns the resource."""
        return self.state is ClaimState.HELD and self._is_attached()

    def is_valid(self, now_ms: int) -> bool:
        """Whether it is held, and the broker cannot have taken the owner for dead: it has heard of it less
        than a session timeout ago."""
        return self.is_held and now_ms < self.valid_until_ms

    def _is_attached(self) -> bool:
        return (
            self._conversation is not None
            and self.home.node() == self._node
            and self._connection.conversation(self._node) is self._conversation
        )

    def doubt(self) -> None:
        """A broker has treated the owner as a stranger: it is asked whether it is one."""
        if self.state is ClaimState.HELD:
            self._detach()

    def release(self) -> None:
        """Let go: at once where nothing was asked yet."""
        if self.has_ended or self.state is ClaimState.RELEASING:
            return
        was_claiming = self.state is ClaimState.CLAIMING
        if was_claiming and self._call is None and self._asked_at_ms == 0:
            self._end(ClaimState.RELEASED)
            return
        self.state = ClaimState.RELEASING
        self._not_before_ms = 0
        if not was_claiming:
            self._call = None  # A Renew, maybe one that waits; what it brings does not matter any more.

    def abandon(self) -> None:
        """Let go without telling: the connection closes."""
        if not self.has_ended:
            self._end(ClaimState.RELEASED)

    # Out ----------------------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Notice that the connection has broken, or that the wait is over; to be called before the next.

        What nobody takes back for a session timeout is as good as released: its broker has heard nothing.
        """
        if self.state is ClaimState.RELEASING:
            if self._release_until_ms is None:
                self._release_until_ms = now_ms + self._settings.session_timeout_ms
            elif now_ms >= self._release_until_ms:
                self.abandon()
        if self.state in (ClaimState.HELD, ClaimState.QUEUED) and not self._is_attached():
            self._detach()
        if self._wait_ms > 0 and self._wait_until_ms is None:
            self._wait_until_ms = now_ms + self._wait_ms
        if self.state is ClaimState.CLAIMING and self._call is None and self._is_wait_over(now_ms):
            self._give_up_waiting(self.last_error)

    @property
    def question(self) -> RequestKind | None:
        """What it has to ask; None while an answer is awaited, and after the end."""
        if self._call is not None or self.has_ended:
            return None
        match self.state:
            case ClaimState.CLAIMING:
                return RequestKind.CLAIM
            case ClaimState.DETACHED:
                return RequestKind.RESUME
            case ClaimState.RELEASING:
                return RequestKind.LOOK if self._must_look else RequestKind.RELEASE
        return RequestKind.RENEW

    @property
    def due_ms(self) -> int:
        """When to ask, which may have passed."""
        return self._not_before_ms

    @property
    def gives_up_at_ms(self) -> int | None:
        """When `look` will find that the wait is over, or the release pointless."""
        if self._call is None and self.state is ClaimState.CLAIMING:
            return self._wait_until_ms
        return self._release_until_ms if self.state is ClaimState.RELEASING else None

    def ask(self, call_at_ms: int, *, is_alone: bool) -> ResourceRequest:
        """What to ask now. A claim stands in the queue only where it `is_alone` in its request."""
        question = self.question
        assert question is not None
        generation, incarnation = self._named_generation, NO_GRANT
        if self.grant is not None:
            generation, incarnation = self.grant.generation, self.grant.incarnation
        wait_ms = 0
        if question is RequestKind.CLAIM:
            self.must_queue = self.must_queue or (is_alone and self.may_wait)
            wait_ms = self._left_to_wait_ms(call_at_ms) if self.must_queue else 0
        elif question is RequestKind.RENEW:
            is_held = self.state is ClaimState.HELD
            terms = self._settings
            wait_ms = min(terms.held_wait_ms if is_held else terms.queued_wait_ms, terms.third_ms)
        return ResourceRequest(question, self.resource, generation, incarnation, wait_ms)

    def asked(self, call: Call, now_ms: int) -> None:
        """It has been asked, in this call."""
        self._call = call
        self._asked_at_ms = max(now_ms, 1)

    def _left_to_wait_ms(self, now_ms: int) -> int:
        return self._wait_ms if self._wait_until_ms is None else max(self._wait_until_ms - now_ms, 1)

    def _is_wait_over(self, now_ms: int) -> bool:
        return self._wait_until_ms is not None and self._wait_until_ms <= now_ms

    # In -----------------------------------------------------------------------------------------------

    def awaits(self, call: Call) -> bool:
        """Whether the answer to this call is for it; it may have gone on without it."""
        return self._call is call

    def answered(
        self, standing: ResourceStanding, node: int, conversation: Conversation | None, now_ms: int
    ) -> None:
        """This is the answer, in that conversation with the broker."""
        self._call = None
        self._node, self._conversation = node, conversation
        if self.state is ClaimState.RELEASING:
            self._handle_release(standing, now_ms)
        elif standing.error_code == ErrorCode.NONE:
            self._granted(standing, now_ms)
        elif standing.error_code == ErrorCode.CLAIM_QUEUED:
            self._queued(standing, now_ms)
        else:
            self._handle_error(standing, now_ms)

    def not_answered(self, error: Exception, now_ms: int) -> None:
        """There will be no answer."""
        self._call = None
        if not is_retriable(error):
            self.fail(error)
            return
        self.home.forget()
        if self.state in (ClaimState.HELD, ClaimState.QUEUED):
            self._detach()
        self._pause(error, now_ms)

    def fail(self, error: Exception, standing: ResourceStanding | None = None) -> None:
        """Something will not pass by itself."""
        if self.state is ClaimState.RELEASING:
            self._end(ClaimState.RELEASED)
        elif self.state in (ClaimState.HELD, ClaimState.DETACHED):
            self._lose(error, standing)
        elif not self.has_ended:
            self._refuse(error, standing)

    def _granted(self, standing: ResourceStanding, now_ms: int) -> None:
        was = self.state
        self.state = ClaimState.HELD
        self.grant = standing
        self.last_error = None
        self.valid_until_ms = self._asked_at_ms + self._settings.session_timeout_ms
        is_news = was is not ClaimState.HELD or standing.is_contended
        if is_news:
            self._tell(standing, is_resumed=was is ClaimState.DETACHED)
        self._renew_later(now_ms, self._settings.held_wait_ms, self._settings.third_ms, is_news=is_news)

    def _queued(self, standing: ResourceStanding, now_ms: int) -> None:
        is_news = self.state is not ClaimState.QUEUED or self._position != standing.position
        self.state = ClaimState.QUEUED
        self._position = standing.position
        self.last_error = None
        if is_news:
            self._tell(standing)
        self._renew_later(
            now_ms, self._settings.queued_wait_ms, self._settings.retry_backoff_ms, is_news=is_news
        )

    def _renew_later(self, now_ms: int, wait_ms: int, pause_ms: int, *, is_news: bool) -> None:
        """One that may wait at the broker does so again at once, the others come by from time to time."""
        gap_ms = pause_ms
        if wait_ms:
            # A first Renew need not wait, since the broker has told nothing yet. Should others not wait
            # either, though they bring nothing new, they must not keep the broker busy.
            is_early = not is_news and now_ms < self._asked_at_ms + self._settings.retry_backoff_ms
            self._early_answers = self._early_answers + 1 if is_early else 0
            gap_ms = self._settings.retry_backoff_ms if self._early_answers > 1 else 0
        self._not_before_ms = max(now_ms, self._asked_at_ms + min(gap_ms, self._settings.third_ms))

    def _handle_error(self, standing: ResourceStanding, now_ms: int) -> None:
        error = error_for(standing.error_code, standing.error_message)
        code = error.code
        is_claiming = self.state is ClaimState.CLAIMING
        if code is ErrorCode.REQUEST_TIMED_OUT and is_claiming:
            # The grant stands, or the place in the queue does: Renew tells.
            self.state = ClaimState.QUEUED
            self._position = 0
        elif code is ErrorCode.OPERATION_NOT_ATTEMPTED and is_claiming:
            self._asked_at_ms = 0  # Another could not be had: of this one nothing has come.
        elif code is ErrorCode.RESOURCE_OWNED and is_claiming and self.may_wait and not self.must_queue:
            self.must_queue = True
            self._asked_at_ms = 0
        elif code in _FENCED and self.grant is not None:
            self._lose(error, standing)
        elif code is ErrorCode.REQUEST_TIMED_OUT and self.state is ClaimState.QUEUED:
            self._left_queue(error, now_ms)
        elif code in _MOVED or error.retriable:
            if code in _MOVED and code is not ErrorCode.OWNERSHIP_DETACHED:
                self.home.forget()
            if self.state in (ClaimState.HELD, ClaimState.QUEUED) and code in _MOVED:
                self._detach()
            self._pause(error, now_ms)
        else:
            self.fail(error, standing)

    def _left_queue(self, error: Exception, now_ms: int) -> None:
        """The broker lets it wait no longer. How long that is this clock alone says: should the broker's be
        ahead, it goes on for what is left."""
        self.state = ClaimState.CLAIMING
        if self._is_wait_over(now_ms):
            self._give_up_waiting(error)
        else:
            self._pause(error, now_ms)

    def _handle_release(self, standing: ResourceStanding, now_ms: int) -> None:
        code = standing.error_code
        if code == ErrorCode.NONE and standing.incarnation != NO_GRANT:
            # The answer to the claim, or to the look: now there is something to release.
            self.grant = standing
            self._must_look = False
        elif code == ErrorCode.CLAIM_QUEUED and standing.position > 0:
            self._must_look = False
        elif code == ErrorCode.CLAIM_QUEUED:
            self._pause(error_for(code, standing.error_message), now_ms)  # Promoted, and not complete yet.
        elif code == ErrorCode.REQUEST_TIMED_OUT and self._must_look:
            self._end(ClaimState.RELEASED)  # Neither in the queue any more nor promoted.
        elif code in _FENCED and self.grant is None and not self._must_look:
            self._must_look = True  # It may have been promoted while its release was on the way.
        elif code in _MOVED or error_for(code).retriable:
            self.home.forget()
            self._pause(error_for(code, standing.error_message), now_ms)
        else:
            self._end(ClaimState.RELEASED)

    def _pause(self, error: Exception, now_ms: int) -> None:
        self.last_error = error
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms

    # States -------------------------------------------------------------------------------------------

    def _detach(self) -> None:
        """The connection is another: resume on it; one that waits has lost its place, and claims anew."""
        self._call = None
        self._conversation = None
        self._not_before_ms = 0
        if self.state is ClaimState.QUEUED:
            self.state = ClaimState.CLAIMING
            return
        self.state = ClaimState.DETACHED
        self._tell(self.grant)

    def _lose(self, error: Exception, standing: ResourceStanding | None) -> None:
        self.error = error
        self._end(ClaimState.LOST, standing)

    def _refuse(self, error: Exception, standing: ResourceStanding | None = None) -> None:
        self.error = error
        self._end(ClaimState.REFUSED, standing)

    def _give_up_waiting(self, because: Exception | None) -> None:
        detail = "" if because is None else f": {because}"
        error = RequestTimeoutError(f"{self.resource}: not granted within {self._wait_ms} ms{detail}")
        error.__cause__ = because
        self._refuse(error)

    def _end(self, state: ClaimState, standing: ResourceStanding | None = None) -> None:
        self.state = state
        self._call = None
        self._conversation = None
        self._tell(standing)

    def _tell(self, standing: ResourceStanding | None, *, is_resumed: bool = False) -> None:
        event = OwnershipEvent(self.resource, self.state, is_resumed=is_resumed, error=self.error)
        self.events.append(event if standing is None else event.with_standing(standing))


def error_of(claim: OwnershipClaim) -> Exception:
    """What is to be raised for a claim that has ended."""
    if claim.error is not None:
        return claim.error
    return BrokerError(ErrorCode.OWNERSHIP_FENCED, f"{claim.resource} was released")
