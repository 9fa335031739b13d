"""A channel to another broker of a cluster with a secret: no request is sent before both have proved
themselves."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_log.broker.network.handshake import NONCE_BYTES, CallerHandshake, ClusterSecret, Handshake
from holdfast_log.broker.network.outbound import ChannelLost, ChannelSettings, ChannelTimeout
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.api_versions import ApiVersionsResponse
from holdfast_log.protocol.messages.authenticate_broker import AuthenticateBrokerResponse
from tests.broker.network.played_broker import PlayedBroker

KEY = b"k" * 32
NONCE, OTHER_NONCE = bytes(NONCE_BYTES), b"n" * NONCE_BYTES
EXCHANGE = Handshake("cluster", 1, 2, NONCE, OTHER_NONCE)
SETTINGS = ChannelSettings("broker-1", request_timeout_ms=1000, backoff_ms=125, backoff_ms_max=500)
AUTHENTICATE = 30031
API_VERSIONS = 18


class World(PlayedBroker):
    """The test plays a broker of a cluster with a secret."""

    def __init__(self, *, is_optional: bool = False) -> None:
        def begin() -> CallerHandshake:
            secret = ClusterSecret((KEY,))
            return CallerHandshake(secret, "cluster", 1, 2, NONCE, is_optional=is_optional)

        super().__init__(SETTINGS, begin)

    def answer(self, **fields: Any) -> None:
        """Answer the request of the handshake."""
        response = AuthenticateBrokerResponse(**{"error_code": ErrorCode.NONE, **fields})
        self.receive(response, 0, 0x7FFFFFFF)


def test_requests_follow_once_both_have_proved_themselves() -> None:
    world = World()
    world.send()
    world.connect()
    world.send()
    assert world.sent() == [AUTHENTICATE] and not world.channel.is_connected
    world.answer(nonce=OTHER_NONCE)
    assert world.sent() == [AUTHENTICATE] and not world.channel.is_connected
    world.answer(nonce=OTHER_NONCE, proof=EXCHANGE.proof_of_answerer(KEY))
    assert world.sent() == [API_VERSIONS] * 2 and world.channel.is_connected
    world.send()
    assert world.sent() == [API_VERSIONS]
    answer = ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=7)
    for number in range(3):
        world.receive(answer, 4, number)
    assert [outcome.throttle_time_ms for outcome in world.outcomes] == [7] * 3


@pytest.mark.parametrize("proof", [b"", bytes(32), EXCHANGE.proof_of_caller(KEY)])
def test_an_impostor_gets_no_request(proof: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.send()
    for attempt in range(3):
        world.connect()
        world.answer(nonce=OTHER_NONCE)
        assert world.sent() == [AUTHENTICATE] * 2
        world.answer(nonce=OTHER_NONCE, proof=proof)
        assert world.sent() == [] and world.attempt.wire.is_aborted
        assert len(world.outcomes) == attempt + 1
        assert world.outcomes[-1].check(ChannelLost)
        assert "has not proved that it has the cluster's secret" in str(world.outcomes[-1].value)
        world.send()
        world.clock.advance(0.6)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1, "one line, however often the channel tries"


def test_a_refusal_says_what_to_do() -> None:
    world = World()
    world.send()
    world.connect()
    world.answer(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="this broker has no cluster.secret.file"
    )
    assert "this broker has no cluster.secret.file" in str(world.outcomes[0].value)
    assert world.sent() == [AUTHENTICATE]


def test_a_broker_without_a_secret_gets_requests_while_the_cluster_changes() -> None:
    world = World(is_optional=True)
    world.send()
    world.connect()
    world.answer(error_code=ErrorCode.SECURITY_DISABLED)
    assert world.sent() == [AUTHENTICATE, API_VERSIONS]


def test_a_connection_that_is_lost_before_the_proof_is_explained() -> None:
    world = World()
    world.send()
    world.connect()
    world.attempt.receiver.connection_lost("the peer left")
    assert "before it proved that it has the cluster's secret" in str(world.outcomes[0].value)


def test_a_broker_that_does_not_answer_the_handshake_is_given_up() -> None:
    world = World()
    world.send()
    world.connect()
    world.clock.advance(1.1)
    assert world.outcomes[0].check(ChannelTimeout)
    assert world.attempt.wire.is_aborted


def test_bytes_that_are_no_answer_end_the_connection() -> None:
    world = World()
    world.send()
    world.connect()
    world.attempt.receiver.frames_received([memoryview(bytearray(b"\x7f\xff\xff\xff\x00\x00"))])
    assert world.outcomes[0].check(ChannelLost)
    assert world.attempt.wire.is_aborted
