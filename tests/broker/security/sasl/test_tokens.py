"""OAUTHBEARER: which tokens are taken, by whose keys, and for how long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.security.sasl import tokens
from holdfast_log.broker.security.sasl.oauthbearer import OAuthBearerServer, TokenRefused, TokenRules
from holdfast_log.broker.security.sasl.outcomes import Challenge, Identified, SaslRefused
from holdfast_log.broker.security.sasl.tokens import Tokens, parse_keys, read_keys
from holdfast_log.clients.settings import SettingError
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.callers import OAuthBearerCaller
from tests.broker.security.sasl.gated import HEARTBEAT, Gated, encoded, setup
from tests.certificates import Authority
from tests.key_server import published

NOW_S = 1_700_000_000
KEY, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
RULES = TokenRules("file:///keys", 3_600_000, ("kafka",), "https://issuer", 30, "sub")


def listed(**keys: ec.EllipticCurvePrivateKey) -> bytes:
    """The public keys as JWKS, by their ids."""
    rows = [
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": name, "alg": "ES256"}
        for name, key in keys.items()
    ]
    return json.dumps({"keys": rows}).encode()


def token(key: Any = KEY, kid: str | None = "one", algorithm: str = "ES256", **claims: Any) -> str:
    given = {"sub": "alice", "aud": "kafka", "iss": "https://issuer", "exp": NOW_S + 600, **claims}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(
        {name: value for name, value in given.items() if value is not None}, key, algorithm, headers
    )


class Fetching:
    """Workers that fetch what the test has put there."""

    def __init__(self) -> None:
        self.data: bytes | Exception = listed(one=KEY)
        self.fetched = 0

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        assert function is read_keys
        self.fetched += 1
        return fail(self.data) if isinstance(self.data, Exception) else succeed(parse_keys(self.data))


class World:
    def __init__(self, rules: TokenRules = RULES) -> None:
        self.clock = Clock()
        self.workers = Fetching()
        self.now_ms = NOW_S * 1000
        self.tokens = Tokens(rules, self.workers, self.clock, lambda: self.now_ms)

    def outcome(self, text: str) -> Any:
        """Whose the token is, or why it is refused."""
        found: list[Any] = []
        self.tokens.validate(text).addCallbacks(found.append, lambda failure: found.append(failure.value))
        (outcome,) = found
        return outcome

    def refusal(self, text: str) -> str:
        outcome = self.outcome(text)
        assert isinstance(outcome, TokenRefused), outcome
        return str(outcome)


def test_a_token_says_who_its_bearer_is_and_until_when() -> None:
    assert World().outcome(token()) == Identified("alice", expires_ms=(NOW_S + 630) * 1000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (token(OTHER), "not valid"),
        (token(kid="two"), "the key 'two'"),
        (token(aud="billing"), "not valid"),
        (token(iss="https://other"), "not valid"),
        (token(exp=NOW_S - 31), "has expired"),
        (token(exp=None), "not valid"),
        (token(exp="soon"), "not valid|no time"),
        (token(nbf=NOW_S + 31), "not valid yet"),
        (token(sub=None), "not valid"),
        (token(sub=""), "no name"),
        (token(b"k" * 32, algorithm="HS256"), "signed by 'HS256'"),
        (token("", algorithm="none"), "signed by 'none'"),
        ("a.b.c", "not a signed JWT"),
        ("x", "not a signed JWT"),
        (token()[:-4] + "AAAA", "not valid"),
    ],
)
def test_any_other_token_is_refused(text: str, said: str) -> None:
    refusal = World().refusal(text)
    assert re.search(said, refusal) and text not in refusal


def test_a_public_key_is_no_secret_for_a_signature() -> None:
    """A token that is signed with the public key as if it were a shared secret."""
    public = json.loads(listed(one=KEY))["keys"][0]["x"].encode()
    assert "HS256" in World().refusal(token(public * 2, algorithm="HS256"))


def test_clocks_may_differ_a_little() -> None:
    world = World()
    assert world.outcome(token(exp=NOW_S - 29, nbf=NOW_S + 29)).user == "alice"


def test_keys_are_fetched_once_and_again_when_they_are_old() -> None:
    world = World()
    for _ in range(3):
        world.outcome(token())
    assert world.workers.fetched == 1
    world.clock.advance(3600)
    world.workers.data = listed(two=OTHER)
    assert world.outcome(token()).user == "alice" and world.workers.fetched == 2
    assert world.outcome(token(OTHER, "two")).user == "alice"
    assert "the key 'one'" in world.refusal(token())


def test_a_new_key_is_fetched_but_unknown_ones_make_no_flood() -> None:
    world = World()
    world.outcome(token())
    world.workers.data = listed(one=KEY, two=OTHER)
    world.clock.advance(10)
    assert world.outcome(token(OTHER, "two")).user == "alice"
    for number in range(50):
        world.refusal(token(kid=f"unknown {number}"))
    assert world.workers.fetched == 2


def test_keys_stay_while_they_cannot_be_fetched(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.outcome(token())
    world.clock.advance(3600)
    world.workers.data = OSError("no route")
    assert world.outcome(token()).user == "alice"
    assert "no route" in caplog.text and "sasl.oauthbearer.jwks.endpoint.url" in caplog.text


def test_a_token_without_a_key_id_is_verified_with_the_only_key() -> None:
    world = World()
    assert world.outcome(token(kid=None)).user == "alice"
    other = World()
    other.workers.data = listed(one=KEY, two=OTHER)
    assert "no key" in other.refusal(token(kid=None))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"keys": 5}', b'{"keys": [{"kty": "oct", "k": "eA"}]}', b'{"keys": []}']
)
def test_a_list_without_a_public_key_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(data)


def test_keys_come_from_a_file_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(listed(one=KEY))
    assert list(read_keys(path.as_uri())) == ["one"]
    monkeypatch.setattr(tokens, "_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_keys(path.as_uri())


def test_keys_come_over_https_from_who_has_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority, strangers = Authority(), Authority("Strangers")
    trusted, others = authority.write(tmp_path / "authority.pem"), strangers.write(tmp_path / "others.pem")
    authority.issue("issuer", ("localhost",)).write(tmp_path / "issuer.pem")
    authority.issue("elsewhere", ("elsewhere.example",)).write(tmp_path / "elsewhere.pem")
    with published(listed(one=KEY), tmp_path / "issuer.pem") as url:
        assert list(read_keys(url, trusted)) == ["one"]
        for truststore in (others, None):
            with pytest.raises(OSError, match="certificate verify failed"):
                read_keys(url, truststore)
    with (
        published(listed(one=KEY), tmp_path / "elsewhere.pem") as url,
        pytest.raises(OSError, match="Hostname mismatch"),
    ):
        read_keys(url, trusted)


# -- the exchange --------------------------------------------------------------------------------------------


def exchange(outcome: Any) -> OAuthBearerServer:
    return OAuthBearerServer(
        lambda text: fail(outcome) if isinstance(outcome, Exception) else succeed(outcome)
    )


def test_the_text_of_a_refusal_is_answered_before_the_end() -> None:
    server, caller = exchange(TokenRefused("expired")), OAuthBearerCaller(lambda: "a.b.c")
    found: list[Any] = []
    evaluated = server.evaluate(caller.first())
    assert isinstance(evaluated, Deferred)
    evaluated.addCallback(found.append)
    assert found == [Challenge(b'{"status":"invalid_token"}')]
    answer = caller.answered(found[0].token)
    assert answer == b"\x01"
    with pytest.raises(SaslRefused, match="invalid_token") as raised:
        server.evaluate(answer)
    assert raised.value.reason == "expired"


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"p,,\x01auth=Bearer x\x01\x01"]
)
def test_a_message_of_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(SaslRefused):
        exchange(Identified("alice")).evaluate(message)


def test_nobody_acts_for_somebody_else() -> None:
    failures: list[Any] = []
    evaluated = exchange(Identified("alice")).evaluate(b"n,a=carol,\x01auth=Bearer x\x01\x01")
    assert isinstance(evaluated, Deferred)
    evaluated.addErrback(failures.append)
    assert failures[0].check(SaslRefused)


def gated_with(world: World, **given: str) -> Gated:
    gated = Gated(
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url="file:///keys",
        **given,
    )
    gated.date_ms = world.now_ms
    gated.gates._validate_by = lambda rules: world.tokens.validate
    return gated


def test_a_client_with_a_token_is_known_until_the_token_expires() -> None:
    gated = gated_with(World())
    assert gated.log_in(OAuthBearerCaller(token)) == 630_000
    gated.clock.advance(0)
    assert gated.is_let_through() and gated.heartbeats.principals == ["User:alice"]
    gated.clock.advance(629)
    assert gated.is_let_through()
    gated.clock.advance(1)
    assert not gated.is_let_through()


def test_a_client_with_another_token_is_refused() -> None:
    gated = gated_with(World())
    error = gated.refusal(OAuthBearerCaller(lambda: token(OTHER)))
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED and "invalid_token" in str(error)
    assert gated.connection.is_closed and gated.gates.authenticated == 0


def test_frames_wait_while_keys_are_fetched() -> None:
    world = World()
    waiting: list[Deferred[Any]] = []
    world.workers.run = lambda *_: waiting.append(Deferred()) or waiting[-1]  # type: ignore
    gated = gated_with(world)
    gated.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    first = OAuthBearerCaller(token).first()
    gated.receive(encoded(SaslAuthenticateRequest(auth_bytes=first)), encoded(HEARTBEAT))
    assert gated.heartbeats.principals == [] and not gated.connection.is_closed
    waiting[0].callback(parse_keys(listed(one=KEY)))
    gated.clock.advance(0)
    assert gated.heartbeats.principals == ["User:alice"]


@pytest.mark.parametrize("url", [None, "http://issuer/keys", "ftp://x"])
def test_the_keys_need_a_safe_place(url: str | None) -> None:
    given = {} if url is None else {"sasl_oauthbearer_jwks_endpoint_url": url}
    with pytest.raises(SettingError, match="https: or file: URL of the keys"):
        setup(sasl_enabled_mechanisms="PLAIN,OAUTHBEARER", **given)
