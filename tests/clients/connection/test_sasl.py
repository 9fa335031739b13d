"""SASL from a client's settings, and a client that authenticates again on its connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.config import ADMIN_ROWS, admin_settings
from holdfast_log.clients.connection.conversation import Conversation
from holdfast_log.clients.connection.sasl import sasl_authenticator
from holdfast_log.clients.errors import ConfigError
from holdfast_log.protocol.errors import AuthenticationError, ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_request_header, encode_response
from holdfast_log.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeResponse
from holdfast_log.protocol.sasl.mechanisms import MECHANISMS

USER = {"sasl.username": "alice", "sasl.password": "hidden"}
PLAIN_SETTINGS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **USER}
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
VERSIONS, HANDSHAKE, AUTHENTICATE, BEAT = 18, 17, 36, 12


def settings(**given: str) -> Any:
    values = {name.replace("_", "."): value for name, value in given.items()}
    return admin_settings({"bootstrap.servers": "b:1", **values})


class Talk:
    """One conversation; the test plays the broker."""

    def __init__(self, given: dict[str, str] | None = None) -> None:
        made = admin_settings({"bootstrap.servers": "b:1", **(given or PLAIN_SETTINGS)})
        self.wire = Conversation("c", 1 << 20, sasl_authenticator(made))
        self.wire.begin()

    def sent(self) -> list[int]:
        """The APIs of the requests since the last call; their ids are kept."""
        data = b"".join(bytes(part) for part in self.wire.outgoing)
        self.wire.sent(len(data))
        self.ids, found = [], []
        while data:
            size = int.from_bytes(data[:4])
            header, _ = decode_request_header(memoryview(bytearray(data[4 : 4 + size])))
            self.ids.append(header.correlation_id)
            found.append(header.api_key)
            data = data[4 + size :]
        return found

    def answer(self, response: Any, version: int, id_: int | None = None) -> list[Any]:
        data = join_parts(encode_response(response, version, self.ids[0] if id_ is None else id_))
        self.wire.receive_buffer()[: len(data)] = data
        return self.wire.received(len(data))

    def introduce(self) -> None:
        assert self.sent() == [VERSIONS]
        rows = [
            ApiVersion(api_key=key, min_version=0, max_version=last)
            for key, last in ((VERSIONS, 3), (HANDSHAKE, 1), (AUTHENTICATE, 2), (BEAT, 4))
        ]
        self.answer(ApiVersionsResponse(error_code=0, api_keys=rows), 3)

    def log_in(self, lifetime_ms: int = 0) -> None:
        assert self.sent() == [HANDSHAKE]
        self.answer(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1)
        assert self.sent() == [AUTHENTICATE]
        answer = SaslAuthenticateResponse(error_code=0, auth_bytes=b"", session_lifetime_ms=lifetime_ms)
        self.answer(answer, 2)


def test_a_client_authenticates_before_its_first_request() -> None:
    talk = Talk()
    talk.introduce()
    assert not talk.wire.is_ready
    talk.log_in()
    assert talk.wire.is_ready and talk.wire.take_lifetime_ms() == 0


def test_a_client_authenticates_again_behind_its_earlier_requests() -> None:
    talk = Talk()
    talk.introduce()
    talk.log_in(60_000)
    assert talk.wire.take_lifetime_ms() == 60_000 and talk.wire.take_lifetime_ms() == 0
    talk.wire.send(HEARTBEAT, "earlier")
    assert talk.sent() == [BEAT]
    earlier = talk.ids[0]
    talk.wire.renew()
    assert talk.wire.is_renewing and talk.sent() == [HANDSHAKE]
    handshake = talk.ids[0]
    received = talk.answer(HeartbeatResponse(throttle_time_ms=0, error_code=0), 4, earlier)
    assert [each.token for each in received] == ["earlier"] and talk.wire.is_renewing
    talk.answer(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1, handshake)
    assert talk.sent() == [AUTHENTICATE]
    talk.answer(SaslAuthenticateResponse(error_code=0, auth_bytes=b"", session_lifetime_ms=5), 2)
    assert not talk.wire.is_renewing and talk.wire.take_lifetime_ms() == 5


def test_a_refusal_has_the_brokers_text() -> None:
    talk = Talk()
    talk.introduce()
    talk.sent()
    talk.answer(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 1)
    talk.sent()
    refusal = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong", auth_bytes=b""
    )
    with pytest.raises(AuthenticationError, match="wrong"):
        talk.answer(refusal, 2)


def test_a_client_never_falls_back_to_another_mechanism() -> None:
    talk = Talk({**PLAIN_SETTINGS, "sasl.mechanism": "SCRAM-SHA-512"})
    talk.introduce()
    talk.sent()
    offer = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"])
    with pytest.raises(AuthenticationError, match="SCRAM-SHA-512 at this address, only PLAIN"):
        talk.answer(offer, 1)
    assert talk.sent() == []


def test_a_listener_without_sasl_is_named() -> None:
    talk = Talk()
    talk.introduce()
    talk.sent()
    with pytest.raises(Exception, match="wants no SASL at this address: set security"):
        talk.answer(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]), 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "needs a user: set sasl.username"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": "x"},
            "sasl.jaas.config is not allowed",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": 'a.ScramLoginModule required username="a" password="hidden";',
            },
            "not the login module of sasl.mechanism=PLAIN",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_jaas_config": 'a.PlainLoginModule required username="a" password="hidden";',
            },
            "either sasl.jaas.config, or",
        ),
    ],
)
def test_what_is_missing_is_said_without_a_password(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        sasl_authenticator(settings(**given))
    assert "hidden" not in str(raised.value)


def test_a_login_module_has_the_user() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    made = settings(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)
    exchange = sasl_authenticator(made)()
    next(exchange)
    request = exchange.send(SaslHandshakeResponse(error_code=0, mechanisms=[]))
    assert request.auth_bytes == b"\0a\0b"


def test_the_settings_name_mechanisms_that_there_are() -> None:
    """They are literals there, so that a client without SASL loads none of it."""
    (row,) = [row for row in ADMIN_ROWS if row.name == "sasl.mechanism"]
    assert row.choices == MECHANISMS


def give_token() -> str:
    return "of.the.test"


def give_nothing() -> None:
    """A provider that has no token."""


@pytest.mark.parametrize("kind", ["file", "provider"])
def test_a_token_comes_from_a_file_or_a_function(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("of.the.test\n")
    value = str(path) if kind == "file" else f"{__name__}:give_token"
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        f"sasl.oauthbearer.token.{kind}": value,
    }
    exchange = sasl_authenticator(settings(**given))()
    next(exchange)
    request = exchange.send(SaslHandshakeResponse(error_code=0, mechanisms=[]))
    assert request.auth_bytes == b"n,,\x01auth=Bearer of.the.test\x01\x01"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs tokens: set either"),
        ({"sasl.oauthbearer.token.provider": "nowhere:x"}, "expected module:function"),
        ({"sasl.oauthbearer.token.provider": f"{__name__}:absent"}, "expected module:function"),
    ],
)
def test_what_gives_no_tokens_is_refused_at_once(given: dict[str, str], said: str) -> None:
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match=said):
        sasl_authenticator(settings(**base, **given))


@pytest.mark.parametrize(
    "source",
    [
        {"sasl.oauthbearer.token.file": "/nowhere"},
        {"sasl.oauthbearer.token.provider": f"{__name__}:give_nothing"},
    ],
)
def test_a_token_that_is_missing_later_fails_the_authentication(source: dict[str, str]) -> None:
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    exchange = sasl_authenticator(settings(**base, **source))()
    next(exchange)
    with pytest.raises(AuthenticationError, match="OAUTHBEARER"):
        exchange.send(SaslHandshakeResponse(error_code=0, mechanisms=[]))
