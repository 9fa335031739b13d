"""The gate of each connection to a SASL listener: only who has authenticated gets through.

A gate stands in front of the connection's handler. Once the client is known, and need not authenticate again,
the gate steps aside: then a request costs as much as on any other listener.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.connection import ReplySlot, ServerConnection
from holdfast_log.broker.security.sasl.listeners import SaslListener, SaslMechanism, SaslSetup
from holdfast_log.broker.security.sasl.machine import SaslAction, SaslEvent, SaslMachine, SaslState
from holdfast_log.broker.security.sasl.oauthbearer import OAuthBearerServer, TokenRules, VerifyToken
from holdfast_log.broker.security.sasl.outcomes import (
    Challenge,
    Identified,
    SaslOutcome,
    SaslRefused,
    SaslServer,
)
from holdfast_log.broker.security.sasl.plain import PlainServer
from holdfast_log.broker.security.sasl.scram import ScramServer
from holdfast_log.broker.security.sasl.settings import SETTINGS
from holdfast_log.broker.security.sasl.users import ScramUsers
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import Clock, DelayedCall, TimeOfDay
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from holdfast_log.protocol.sasl.mechanisms import PLAIN
from holdfast_log.protocol.sasl.scram import (
    SALT_CHARACTERS,
    SCRAM_MECHANISMS,
    ScramCredential,
    new_salt,
)

_log = logging.getLogger(__name__)

_VERSIONS_KEY = ApiVersionsRequest.api.key
_SASL_KEYS = (SaslHandshakeRequest.api.key, SaslAuthenticateRequest.api.key)
_RENEWAL_PAUSE_S = 1.0
"""Minimum time between two authentications of a connection, as in Kafka."""

_FAILURES = "clients that failed to authenticate"
_STRANGERS = "clients that did not authenticate as SASL listeners want it"

_R = TypeVar("_R", SaslHandshakeResponse, SaslAuthenticateResponse)

Handshaken: TypeAlias = SaslHandshakeResponse | Deferred[SaslHandshakeResponse]
Answered: TypeAlias = SaslAuthenticateResponse | Deferred[SaslAuthenticateResponse]


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class SaslLimits:
    """Limits of a client that has not authenticated, and how long a refused one waits for its answer."""

    receive_bytes_max: Annotated[int, "sasl.server.max.receive.size"]
    timeout_ms: Annotated[int, "sasl.authentication.timeout.ms"]
    failed_delay_ms: Annotated[int, "connection.failed.authentication.delay.ms"]


@dataclass(slots=True)
class LoginCounts:
    """What has become of clients at a listener: of the first authentication of a connection (`succeeded`,
    `failed`), and of later ones (`renewed`, `not_renewed`)."""

    succeeded: int = 0
    failed: int = 0
    renewed: int = 0
    not_renewed: int = 0


class SaslGates:
    """The gates of all connections. `date_ms` is for tokens that expire, `random` makes nonces, `validate_by`
    returns what verifies tokens by some rules; None: there are no tokens.

    At a listener in `broker_listeners`, a client that authenticates as one of the broker's users counts as a
    broker.
    """

    def __init__(
        self,
        setup: SaslSetup,
        users: ScramUsers,
        broker_listeners: frozenset[str],
        limits: SaslLimits,
        clock: Clock,
        date_ms: TimeOfDay,
        random: Callable[[int], bytes],
        validate_by: Callable[[TokenRules], VerifyToken] | None = None,
    ) -> None:
        self._validate_by = validate_by
        self.limits = limits
        self.clock = clock
        self.date_ms = date_ms
        self.counts = {name: LoginCounts() for name in setup.listeners}
        """By listener."""
        self._setup = setup
        self._users = users
        self._broker_listeners = broker_listeners
        self._random = random
        self._sessions: dict[int, SaslSession] = {}

    @property
    def authenticated(self) -> int:
        """Authentications that have succeeded, repeated ones included."""
        return sum(counts.succeeded + counts.renewed for counts in self.counts.values())

    @property
    def refused(self) -> int:
        """Connections closed because their clients have not authenticated as they should."""
        return sum(counts.failed + counts.not_renewed for counts in self.counts.values())

    def guard(self, connection: ServerConnection) -> None:
        """Put a gate in front of a new connection, if its listener wants SASL."""
        listener = self._setup.listeners.get(connection.listener)
        if listener is None:
            return
        self._sessions[connection.id] = SaslSession(connection, listener, self)
        connection.add_close_callback(self._forget)

    def session(self, connection: ServerConnection | None) -> SaslSession | None:
        """A connection's authentication; None where its listener wants none."""
        return None if connection is None else self._sessions.get(connection.id)

    def is_broker(self, listener: str, user: str) -> bool:
        """Whether this user, authenticated at this listener, counts as a broker."""
        return listener in self._broker_listeners and user in self._setup.broker_users

    def is_in_force(self, mechanism: SaslMechanism, user: str, credential: ScramCredential) -> bool:
        """Whether a credential by which a client has authenticated is still the user's."""
        return self._users.find(SCRAM_MECHANISMS[mechanism.name], user) == credential

    def judged_again(self) -> Iterator[None]:
        """Close the connections whose clients have authenticated by a credential that is no longer in force;
        one connection each time."""
        for session in list(self._sessions.values()):
            session.judge_again()
            yield

    def begin(self, mechanism: SaslMechanism) -> SaslServer:
        """One authentication by this mechanism."""
        if mechanism.name == PLAIN:
            return PlainServer(mechanism.users)
        if mechanism.tokens is not None:
            assert self._validate_by is not None
            return OAuthBearerServer(self._validate_by(mechanism.tokens))
        scram = SCRAM_MECHANISMS[mechanism.name]
        return ScramServer(
            scram,
            functools.partial(self._users.find, scram),
            functools.partial(self._users.stand_in, scram),
            lambda: new_salt(self._random(SALT_CHARACTERS)).decode(),
        )

    def _forget(self, connection: ServerConnection) -> None:
        self._sessions.pop(connection.id).closed()


class SaslSession:
    """The authentication of one connection, from its first frame on."""

    def __init__(self, connection: ServerConnection, listener: SaslListener, gates: SaslGates) -> None:
        self._connection = connection
        self._listener = listener
        self._gates = gates
        self._handler = connection.handler
        self._frame_bytes_max = connection.frame_bytes_max
        self._machine = SaslMachine()
        self._mechanism: SaslMechanism | None = None
        self._server: SaslServer | None = None
        self._user: str | None = None
        self._credential: ScramCredential | None = None
        self._authenticated_s = 0.0
        self._ends_s: float | None = None
        connection.frame_bytes_max = min(self._frame_bytes_max, gates.limits.receive_bytes_max)
        connection.handle_with(self.received)
        self._timer: DelayedCall | None = None
        self._wait()

    # -- frames ----------------------------------------------------------------------------------------------

    def received(self, connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        """Handle a frame, or close the connection if the client must authenticate first."""
        if self._machine.state is SaslState.RAW_TOKENS:
            self._raw_token(frame, reply)
            return
        key = int.from_bytes(frame[:2]) if len(frame) >= 2 else -1
        if key in _SASL_KEYS:
            self._handler(connection, frame, reply)  # Its handler calls `handshake` or `token`.
            return
        event = self._event_of(key)
        if self._machine.on(event) is SaslAction.HANDLE:
            self._handler(connection, frame, reply)
        elif event is SaslEvent.LATE_REQUEST:
            self._close("it did not authenticate again before its session ended (connections.max.reauth.ms)")
        else:
            self._close(f"it sent a request of API {key} instead of authenticating")

    def _event_of(self, key: int) -> SaslEvent:
        if self._ends_s is not None and self._gates.clock.seconds() >= self._ends_s:
            return SaslEvent.LATE_REQUEST
        return SaslEvent.VERSIONS if key == _VERSIONS_KEY else SaslEvent.REQUEST

    def _raw_token(self, frame: memoryview, reply: ReplySlot) -> None:
        def answer(response: SaslAuthenticateResponse) -> None:
            if response.error_code == ErrorCode.NONE and not self._connection.is_closed:
                token = bytes(response.auth_bytes)
                reply.send([SIZE.pack(len(token)) + token])

        answered = self.token(bytes(frame))
        if isinstance(answered, Deferred):
            answered.addCallback(answer)
        else:
            answer(answered)

    # -- requests --------------------------------------------------------------------------------------------

    def handshake(self, version: int, mechanism: str) -> Handshaken:
        """The answer to SaslHandshake. The connection may be closed when this returns, or later."""
        wanted = self._listener.mechanisms.get(mechanism)
        action = self._machine.on(self._event_of_handshake(version, wanted))
        if action is SaslAction.BEGIN and wanted is not None:
            self._mechanism, self._server = wanted, self._gates.begin(wanted)
            self._connection.handle_with(self.received)
            self._wait()
            return self._chosen(ErrorCode.NONE)
        if action is SaslAction.DECLINE:
            return self._chosen(ErrorCode.ILLEGAL_SASL_STATE)
        if action is SaslAction.FAIL:
            offered = ", ".join(self._listener.mechanisms)
            self._note(f"it wants the mechanism {mechanism[:100]!r}, not one of {offered}")
            return self._later(self._chosen(ErrorCode.UNSUPPORTED_SASL_MECHANISM))
        self._close("it sent a handshake in the midst of another one")
        return self._chosen(ErrorCode.ILLEGAL_SASL_STATE)

    def _event_of_handshake(self, version: int, wanted: SaslMechanism | None) -> SaslEvent:
        if self._machine.state is SaslState.AUTHENTICATED:
            if self._gates.clock.seconds() < self._authenticated_s + _RENEWAL_PAUSE_S:
                return SaslEvent.HASTY_HANDSHAKE
            if wanted is not self._mechanism:
                return SaslEvent.BAD_HANDSHAKE
        if wanted is None:
            return SaslEvent.BAD_HANDSHAKE
        return SaslEvent.HANDSHAKE if version else SaslEvent.RAW_HANDSHAKE

    def _chosen(self, code: ErrorCode) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self._listener.mechanisms))

    def token(self, token: bytes) -> Answered:
        """The answer to SaslAuthenticate. The connection may be closed when this returns, or later."""
        action = self._machine.on(SaslEvent.TOKEN)
        if action is SaslAction.DECLINE:
            text = "SaslAuthenticate request received after successful authentication"
            return _refusal(ErrorCode.ILLEGAL_SASL_STATE, text)
        server = self._server
        if action is not SaslAction.EVALUATE or server is None:
            self._close("it sent a token without a handshake")
            return _refusal(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate comes after SaslHandshake")
        try:
            outcome = server.evaluate(token)
        except SaslRefused as refused:
            return self._fail(refused)
        if not isinstance(outcome, Deferred):
            return self._judged(outcome)
        # Later frames wait: they may be requests of a client that is known by then.
        self._connection.hold()
        return outcome.addCallbacks(self._judged_later, self._failed_later)

    def _judged_later(self, outcome: SaslOutcome) -> Answered:
        if self._connection.is_closed:
            return _answer(b"")
        answered = self._judged(outcome)
        if not isinstance(answered, Deferred):
            self._gates.clock.callLater(0, self._connection.go_on)
        return answered

    def _failed_later(self, failure: Failure) -> Answered:
        failure.trap(SaslRefused)
        assert isinstance(failure.value, SaslRefused)
        return self._fail(failure.value)

    # -- outcomes --------------------------------------------------------------------------------------------

    def _judged(self, outcome: SaslOutcome) -> Answered:
        if isinstance(outcome, Challenge):
            self._machine.on(SaslEvent.CHALLENGED)
            return _answer(outcome.token)
        if self._user is not None and outcome.user != self._user:
            return self._fail(
                SaslRefused(
                    f"Cannot change principals during re-authentication from User:{self._user}: "
                    f"User:{outcome.user}"
                )
            )
        lifetime_ms = self._lifetime_ms(outcome)
        if lifetime_ms is not None and lifetime_ms <= 0:
            return self._fail(SaslRefused("Authentication failed: the token has expired"))
        if self._is_revoked(outcome.user, outcome.credential):
            return self._fail(
                SaslRefused(
                    "Authentication failed: the credential was changed meanwhile: authenticate again",
                    f"the credential of {outcome.user[:100]!r} was changed meanwhile",
                )
            )
        if self._machine.on(SaslEvent.ACCEPTED) is SaslAction.ADMIT:
            self._admit(outcome, lifetime_ms)
        return _answer(outcome.token, lifetime_ms or 0)

    def _lifetime_ms(self, outcome: Identified) -> int | None:
        """For how long the client is known; None: as long as its connection is open."""
        assert self._mechanism is not None
        ends = [self._mechanism.reauth_ms] if self._mechanism.reauth_ms else []
        if outcome.expires_ms is not None:
            ends.append(outcome.expires_ms - self._gates.date_ms())
        return min(ends, default=None)

    def _is_revoked(self, user: str, credential: ScramCredential | None) -> bool:
        """Whether a user is not known any more by the credential with which a proof was compared."""
        if credential is None:
            return False
        assert self._mechanism is not None
        return not self._gates.is_in_force(self._mechanism, user, credential)

    def judge_again(self) -> None:
        """Close the connection if its client has authenticated by a credential that is no longer in force."""
        if self._user is None or not self._is_revoked(self._user, self._credential):
            return
        reason = "the credential by which its client has authenticated was removed or changed"
        _log.info("Closing %s of User:%s: %s", self._connection, self._user, reason)
        self._connection.close(reason)

    def _admit(self, identified: Identified, lifetime_ms: int | None) -> None:
        gates, connection = self._gates, self._connection
        self._stop_waiting()
        self._server = None
        self._count(is_known=True)
        self._user = user = identified.user
        self._credential = identified.credential
        self._authenticated_s = now_s = gates.clock.seconds()
        self._ends_s = None if lifetime_ms is None else now_s + lifetime_ms / 1000
        connection.principal = f"User:{user}"
        connection.frame_bytes_max = self._frame_bytes_max
        if gates.is_broker(connection.listener, user):
            connection.count_as_broker()
        if lifetime_ms is None:
            connection.handle_with(self._handler)
        _log.debug("%s is %s, by %s", connection, connection.principal, self._mechanism)

    def _fail(self, refused: SaslRefused) -> Deferred[SaslAuthenticateResponse]:
        self._machine.on(SaslEvent.REFUSED)
        self._note(refused.reason)
        return self._later(_refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, str(refused)))

    def _note(self, reason: str) -> None:
        self._connection.note_refused_request(_FAILURES, f"it failed to authenticate: {reason}")

    # -- time ------------------------------------------------------------------------------------------------

    def _later(self, response: _R) -> Deferred[_R]:
        """Answer with a refusal after a while, and close the connection. Nothing else is read from it."""
        self._count(is_known=False)
        self._stop_waiting()
        self._connection.hold()
        answered: Deferred[_R] = Deferred()

        def answer() -> None:
            self._timer = None
            answered.callback(response)
            self._connection.close_when_sent("it failed to authenticate")

        self._timer = self._gates.clock.callLater(self._gates.limits.failed_delay_ms / 1000, answer)
        return answered

    def _wait(self) -> None:
        """Give the client time to authenticate, from now on."""
        if self._timer is None:
            self._timer = self._gates.clock.callLater(self._gates.limits.timeout_ms / 1000, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        if self._machine.on(SaslEvent.TIMED_OUT) is SaslAction.CLOSE:
            limit_ms = self._gates.limits.timeout_ms
            self._close(f"it did not authenticate within {limit_ms} ms (sasl.authentication.timeout.ms)")

    def _stop_waiting(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _close(self, reason: str) -> None:
        self._count(is_known=False)
        self._connection.refuse(_STRANGERS, reason)

    def _count(self, *, is_known: bool) -> None:
        """Count an attempt to authenticate: the first of the connection, or one to authenticate again."""
        counts = self._gates.counts[self._listener.name]
        if self._user is None:
            counts.succeeded += is_known
            counts.failed += not is_known
        else:
            counts.renewed += is_known
            counts.not_renewed += not is_known

    def closed(self) -> None:
        """The connection has closed."""
        self._stop_waiting()
        self._server = None
        self._connection.handle_with(self._handler)  # ends the reference cycle


def _answer(token: bytes, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )


def _refusal(code: ErrorCode, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")
