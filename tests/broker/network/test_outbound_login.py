"""A channel to another broker at a SASL listener: it logs in before its first request, and again in time."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_log.broker.network.handshake import CallerHandshake, ClusterSecret
from holdfast_log.broker.network.outbound import ChannelLost, ChannelSettings
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.api_versions import ApiVersionsResponse
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeResponse
from holdfast_log.protocol.sasl.callers import PlainCaller
from tests.broker.network.played_broker import PlayedBroker

SETTINGS = ChannelSettings("broker-1", request_timeout_ms=100_000, backoff_ms=125, backoff_ms_max=500)
API_VERSIONS, HANDSHAKE, AUTHENTICATE, AUTHENTICATE_BROKER = 18, 17, 36, 30031
LOGIN_ID = 0x7FFFFFFF


class World(PlayedBroker):
    """The test plays a SASL listener of broker 2."""

    def __init__(self, *, has_secret: bool = False) -> None:
        secret = ClusterSecret((b"k" * 32,))
        super().__init__(
            SETTINGS,
            (lambda: CallerHandshake(secret, "cluster", 1, 2, bytes(32))) if has_secret else None,
            lambda: PlainCaller("broker", "secret"),
        )

    def accept_handshake(self) -> None:
        self.receive(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, LOGIN_ID)

    def accept_token(self, lifetime_ms: int = 0, **fields: Any) -> None:
        given = {"error_code": 0, "auth_bytes": b"", "session_lifetime_ms": lifetime_ms, **fields}
        self.receive(SaslAuthenticateResponse(**given), 2, LOGIN_ID)

    def answer(self, id_: int) -> None:
        self.receive(ApiVersionsResponse(error_code=0, api_keys=[]), 4, id_)

    def log_in(self, lifetime_ms: int = 0) -> None:
        self.connect()
        assert self.sent() == [HANDSHAKE]
        self.accept_handshake()
        assert self.sent() == [AUTHENTICATE] and not self.channel.is_connected
        self.accept_token(lifetime_ms)


def test_requests_follow_once_the_broker_has_logged_in() -> None:
    world = World()
    world.send()
    world.connect()
    world.send()
    assert world.sent() == [HANDSHAKE]
    world.accept_handshake()
    assert world.sent() == [AUTHENTICATE]
    world.accept_token()
    assert world.sent() == [API_VERSIONS] * 2 and world.channel.is_connected
    world.answer(0)
    world.answer(1)
    assert len(world.outcomes) == 2 and world.clock.getDelayedCalls() == []


def test_the_secret_of_the_cluster_is_proved_after_the_login() -> None:
    world = World(has_secret=True)
    world.send()
    world.log_in()
    assert world.sent() == [AUTHENTICATE_BROKER] and not world.channel.is_connected


@pytest.mark.parametrize("step", [HANDSHAKE, AUTHENTICATE])
def test_a_refusal_fails_the_requests_and_says_why(step: int, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.send()
    world.connect()
    if step == HANDSHAKE:
        world.receive(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"]), 1, LOGIN_ID)
    else:
        world.accept_handshake()
        world.accept_token(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user")
    (failure,) = world.outcomes
    assert failure.check(ChannelLost) and "does not let this broker log in" in failure.getErrorMessage()
    assert ("SCRAM-SHA-512" if step == HANDSHAKE else "no such user") in caplog.text
    assert world.attempt.wire.is_aborted


def test_a_connection_that_ends_while_logging_in_says_what_to_look_at() -> None:
    world = World()
    world.send()
    world.connect()
    world.attempt.receiver.connection_lost("closed")
    (failure,) = world.outcomes
    assert "sasl.mechanism.inter.broker.protocol" in failure.getErrorMessage()


def test_the_broker_logs_in_again_before_its_session_ends() -> None:
    world = World()
    world.send()
    world.log_in(lifetime_ms=10_000)
    assert world.sent() == [API_VERSIONS]
    world.clock.advance(8.4)
    assert world.sent() == []
    world.clock.advance(0.2)
    assert world.sent() == [HANDSHAKE]
    world.send()
    assert world.sent() == []  # held until the broker is known again
    world.answer(0)
    world.accept_handshake()
    assert world.sent() == [AUTHENTICATE] and len(world.outcomes) == 1
    world.accept_token(10_000)
    assert world.sent() == [API_VERSIONS]
    world.answer(1)
    world.clock.advance(8.6)
    assert world.sent() == [HANDSHAKE] and len(world.outcomes) == 2


def test_a_lost_connection_ends_its_session() -> None:
    world = World()
    world.send()
    world.log_in(lifetime_ms=10_000)
    world.attempt.receiver.connection_lost("closed")
    assert len(world.outcomes) == 1
    world.clock.advance(1)
    assert world.clock.getDelayedCalls() == []


def test_requests_held_while_the_session_is_renewed_fail_with_the_connection() -> None:
    world = World()
    world.send()
    world.log_in(lifetime_ms=10_000)
    world.answer(0)
    world.clock.advance(8.6)
    world.send()
    world.accept_handshake()
    world.accept_token(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert world.outcomes[1].check(ChannelLost)
