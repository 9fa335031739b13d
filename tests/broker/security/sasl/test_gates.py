"""What a client of a SASL listener may do before, while and after it authenticates."""

from __future__ import annotations

import random

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.callers import SaslCaller
from holdfast_log.protocol.sasl.scram import parse_server_first
from tests.broker.security.sasl.gated import (
    HEARTBEAT,
    SHA_256,
    SHA_512,
    Gated,
    credentials,
    encoded,
    plain,
    scram,
)

VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")
NAMES = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def first_answer(gated: Gated, user: str) -> tuple[bytes, int]:
    """The salt and the iterations that a name gets, on a connection of its own."""
    gated.connect()
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    answer = gated.ask(SaslAuthenticateRequest(auth_bytes=scram(user, "x").first()))
    assert answer.error_code == 0
    found = parse_server_first(bytes(answer.auth_bytes))
    return found.salt, found.iterations


@pytest.mark.parametrize(
    "caller",
    [plain("alice", "hers"), scram("alice", "wonderland"), scram("alice", "wonderland", SHA_512)],
    ids=NAMES,
)
def test_a_client_that_proves_who_it_is_may_send_requests(caller: SaslCaller) -> None:
    gated = Gated()
    assert gated.ask(VERSIONS).error_code == 0
    assert gated.log_in(caller) == 0
    assert gated.is_let_through()
    assert gated.heartbeats.principals == ["User:alice"]
    assert gated.gates.authenticated == 1 and not gated.connection.is_broker


def test_nothing_stands_between_a_known_client_and_the_handlers() -> None:
    gated = Gated()
    gated.log_in(plain("alice", "hers"))
    assert gated.connection.handler == gated.dispatcher.dispatch
    assert gated.connection.frame_bytes_max == 100_000


@pytest.mark.parametrize("caller", [plain("alice", "x"), plain("nobody", "x"), scram("alice", "x")])
def test_a_refusal_comes_late_and_ends_the_connection(caller: SaslCaller) -> None:
    gated = Gated()
    gated.ask(SaslHandshakeRequest(mechanism=caller.mechanism))
    token = caller.first()
    while True:
        answer = gated.ask(SaslAuthenticateRequest(auth_bytes=token))
        if answer is None:
            break
        token = caller.answered(bytes(answer.auth_bytes)) or b""
    gated.clock.advance(0.099)
    assert not gated.wire.sent and not gated.connection.is_closed
    gated.clock.advance(0.001)
    assert gated.wire.sent and gated.connection.is_closed and gated.wire.is_closed
    assert gated.gates.refused == 1 and not gated.clock.getDelayedCalls()


def test_no_frame_is_handled_behind_one_that_has_failed() -> None:
    gated = Gated()
    gated.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    wrong, right = (
        SaslAuthenticateRequest(auth_bytes=plain("alice", each).first()) for each in ("x", "hers")
    )
    gated.receive(encoded(wrong), encoded(right), encoded(HEARTBEAT))
    gated.clock.advance(1)
    assert gated.heartbeats.principals == [] and gated.connection.is_closed
    assert gated.gates.authenticated == 0


def test_kafkas_texts_tell_nothing_about_users() -> None:
    texts = set()
    for user in ("alice", "nobody"):
        gated = Gated()
        error = gated.refusal(plain(user, "x"))
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        texts.add(str(error))
        gated.connect()
        texts.add(str(gated.refusal(scram(user, "x"))))
    assert len(texts) == 2
    assert any("Authentication failed: Invalid username or password" in text for text in texts)
    assert any("invalid credentials with SASL mechanism SCRAM-SHA-256" in text for text in texts)


def test_a_name_without_a_user_gets_the_same_salt_each_time_and_on_every_broker() -> None:
    gated, other = Gated(), Gated()
    assert first_answer(gated, "nobody") == first_answer(gated, "nobody") == first_answer(other, "nobody")
    assert first_answer(gated, "nobody") != first_answer(gated, "somebody")
    other.users.secret = b"another"
    assert first_answer(gated, "nobody") != first_answer(other, "nobody")


def test_a_name_without_a_user_gets_the_iterations_that_most_have() -> None:
    gated = Gated()
    assert first_answer(gated, "nobody")[1] == 4096
    for user in ("a", "b", "c"):
        gated.users.configs_changed("users", user, credentials("x", 8192))
    assert first_answer(gated, "nobody")[1] == 8192


def test_a_proof_cannot_be_replayed() -> None:
    gated, caller = Gated(), scram("alice", "wonderland")
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    first = SaslAuthenticateRequest(auth_bytes=caller.first())
    final = SaslAuthenticateRequest(auth_bytes=caller.answered(bytes(gated.ask(first).auth_bytes)) or b"")
    assert gated.ask(final).error_code == 0
    gated.connect()
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    assert gated.ask(first).error_code == 0
    assert gated.ask(final) is None
    gated.clock.advance(0.1)
    assert gated.connection.is_closed and gated.gates.authenticated == 1


def test_a_proof_must_repeat_the_header_of_the_first_message() -> None:
    """Else somebody in between could take back what the client has said of channel binding."""
    gated, caller = Gated(), scram("alice", "wonderland")
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    first = b"y" + caller.first()[1:]
    answer = gated.ask(SaslAuthenticateRequest(auth_bytes=first))
    assert (
        gated.ask(SaslAuthenticateRequest(auth_bytes=caller.answered(bytes(answer.auth_bytes)) or b""))
        is None
    )
    assert gated.gates.authenticated == 0


def test_delegation_tokens_are_refused() -> None:
    gated = Gated()
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    gated.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=token,r=x,tokenauth=true"))
    gated.clock.advance(0.1)
    assert b"delegation tokens are not enabled" in gated.wire.data


@pytest.mark.parametrize("user", ["nobody", "alice"])
def test_nobody_acts_for_somebody_else(user: str) -> None:
    gated = Gated()
    gated.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    gated.send(SaslAuthenticateRequest(auth_bytes=b"carol\0alice\0hers"))
    gated.clock.advance(0.1)
    assert gated.gates.authenticated == 0 and gated.connection.is_closed


def test_a_mechanism_that_is_not_enabled_is_named_and_the_others_are_offered() -> None:
    gated = Gated(sasl_enabled_mechanisms="PLAIN")
    error = gated.refusal(scram("alice", "wonderland"))
    assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "SCRAM-SHA-256 at this address, only PLAIN" in str(error) and gated.connection.is_closed


@pytest.mark.parametrize(
    "frames",
    [
        [encoded(HEARTBEAT)],
        [encoded(VERSIONS), encoded(HEARTBEAT)],
        [encoded(SaslAuthenticateRequest(auth_bytes=plain("alice", "hers").first()))],
        [encoded(SaslHandshakeRequest(mechanism="PLAIN")), encoded(HEARTBEAT)],
        [encoded(SaslHandshakeRequest(mechanism="PLAIN")), encoded(VERSIONS)],
        [encoded(SaslHandshakeRequest(mechanism="PLAIN"))] * 2,
        [b""],
        [b"\x00"],
        [b"\xff" * 20],
    ],
)
def test_anything_else_closes_the_connection(frames: list[bytes]) -> None:
    gated = Gated()
    gated.receive(*frames)
    assert gated.connection.is_closed and gated.heartbeats.principals == []
    assert not gated.clock.getDelayedCalls()


def test_random_bytes_never_get_through() -> None:
    generator = random.Random(7)
    for state in range(4):
        for _ in range(25):
            gated = Gated()
            if state == 1:
                gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
            elif state == 2:
                gated.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            elif state == 3:
                gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
                gated.ask(SaslAuthenticateRequest(auth_bytes=scram("alice", "x").first()))
            frame = generator.randbytes(generator.randrange(200))
            gated.receive(frame)
            gated.receive(encoded(SaslAuthenticateRequest(auth_bytes=frame)))
            gated.clock.advance(0.1)
            assert gated.connection.is_closed and gated.gates.authenticated == 0
            assert gated.connection.principal == "User:ANONYMOUS"


def test_a_large_frame_is_refused_before_the_client_is_known() -> None:
    assert Gated().connection.frame_bytes_max == 2048


def test_the_time_to_authenticate_is_bounded() -> None:
    gated = Gated()
    gated.clock.advance(9)
    gated.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    gated.clock.advance(0.9)
    assert not gated.connection.is_closed
    gated.clock.advance(0.2)
    assert gated.connection.is_closed
    gated.connect()
    gated.log_in(plain("alice", "hers"))
    gated.clock.advance(1000)
    assert gated.is_let_through()


def test_raw_tokens_follow_a_handshake_of_version_0() -> None:
    gated, caller = Gated(), scram("alice", "wonderland", SHA_512)
    assert gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0).error_code == 0
    gated.receive(caller.first())
    token = caller.answered(next(gated.wire.frames()))
    assert token is not None
    gated.receive(token)
    assert caller.answered(next(gated.wire.frames())) is None
    assert gated.is_let_through() and gated.heartbeats.principals == ["User:alice"]


def test_a_raw_token_that_is_refused_gets_no_answer() -> None:
    gated = Gated()
    gated.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    gated.receive(plain("alice", "x").first())
    gated.clock.advance(0.1)
    assert gated.connection.is_closed and not gated.wire.data


def test_the_answer_to_plain_is_an_empty_frame_where_tokens_are_raw() -> None:
    gated = Gated()
    gated.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    gated.receive(plain("alice", "hers").first())
    assert gated.wire.data == SIZE.pack(0)


# -- authenticating again ------------------------------------------------------------------------------------


def with_sessions() -> Gated:
    """A client that is known for a minute."""
    gated = Gated(listener_name_clients_connections_max_reauth_ms="60000")
    assert gated.log_in(scram("alice", "wonderland")) == 60_000
    return gated


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    gated = with_sessions()
    gated.clock.advance(59.9)
    assert gated.is_let_through()
    gated.clock.advance(0.1)
    assert not gated.is_let_through() and gated.connection.is_closed


def test_a_client_authenticates_again_on_its_connection_even_after_the_end() -> None:
    gated = with_sessions()
    for pause_s in (50, 61):
        gated.clock.advance(pause_s)
        assert gated.log_in(scram("alice", "wonderland")) == 60_000
        assert gated.is_let_through()
    assert gated.gates.authenticated == 3


def test_a_client_may_authenticate_again_where_sessions_do_not_end() -> None:
    gated = Gated()
    gated.log_in(plain("alice", "hers"))
    gated.clock.advance(1)
    assert gated.log_in(plain("alice", "hers")) == 0 and gated.is_let_through()
    gated.clock.advance(1)
    gated.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    assert not gated.is_let_through() and gated.connection.is_closed


def test_the_principal_does_not_change() -> None:
    gated = with_sessions()
    gated.clock.advance(10)
    error = gated.refusal(scram("carol", "christmas"))
    assert "Cannot change principals" in str(error) and gated.connection.is_closed
    assert gated.connection.principal == "User:alice"


def test_the_mechanism_does_not_change() -> None:
    gated = with_sessions()
    gated.clock.advance(10)
    assert gated.refusal(scram("alice", "wonderland", SHA_512)).code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert gated.connection.is_closed


def test_a_client_that_fails_to_authenticate_again_is_cut_off() -> None:
    gated = with_sessions()
    gated.clock.advance(10)
    assert gated.refusal(scram("alice", "x")).code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert gated.connection.is_closed


def test_a_second_authentication_at_once_is_declined_and_harms_nothing() -> None:
    gated = with_sessions()
    assert (
        gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    )
    late = gated.ask(SaslAuthenticateRequest(auth_bytes=b"x"))
    assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE and gated.is_let_through()


# -- who counts as a broker ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listener", "user", "password", "is_broker"),
    [
        ("BROKERS", "broker", "secret", True),
        ("BROKERS", "alice", "hers", False),
        ("CLIENTS", "broker", "secret", False),
    ],
)
def test_a_brokers_user_at_the_brokers_listener_counts_as_a_broker(
    listener: str, user: str, password: str, *, is_broker: bool
) -> None:
    gated = Gated(listener)
    gated.log_in(plain(user, password))
    assert gated.connection.is_broker is is_broker


def test_with_a_secret_no_user_counts_as_a_broker() -> None:
    gated = Gated("BROKERS", by_user=frozenset())
    gated.log_in(plain("broker", "secret"))
    assert not gated.connection.is_broker


def test_a_listener_without_sasl_wants_no_handshake() -> None:
    gated = Gated("PLAINTEXT")
    assert gated.is_let_through()
    answer = gated.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE and not answer.mechanisms
    token = gated.ask(SaslAuthenticateRequest(auth_bytes=b"x"))
    assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE and gated.is_let_through()


def test_a_user_whose_credential_is_removed_cannot_log_in() -> None:
    gated = Gated()
    gated.users.configs_changed("users", "alice", {"producer_byte_rate": "1"})
    assert gated.refusal(scram("alice", "wonderland")).code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_credential_that_cannot_be_read_is_none(caplog: pytest.LogCaptureFixture) -> None:
    gated = Gated()
    gated.users.configs_changed("users", "alice", {"SCRAM-SHA-256": "salt=hidden"})
    assert gated.users.find(SHA_256, "alice") is None
    assert "cannot log in" in caplog.text and "hidden" not in caplog.text
