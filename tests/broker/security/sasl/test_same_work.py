"""A refusal costs a broker the same work whether the user exists: how long it takes tells nothing of users.

Work is counted, not timed: each HMAC, hash and comparison.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast_log.broker.security.sasl import plain as plain_module
from holdfast_log.broker.security.sasl.plain import PlainServer
from holdfast_log.broker.security.sasl.scram import ScramServer
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.callers import SaslCaller
from tests.broker.security.sasl.gated import SHA_512, Gated, plain, scram

Work = list[tuple[object, ...]]
DELAY_S = 0.1
"""connection.failed.authentication.delay.ms of `Gated`."""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """What is computed from now on."""
    done: Work = []

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            done.append((name, *(each for each in arguments if isinstance(each, str))))
            return original(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    counted(hmac, "digest")
    counted(hmac, "compare_digest")
    counted(hashlib, "new")
    counted(hashlib, "sha256")
    yield done


def refused(work: Work, gated: Gated, caller: SaslCaller) -> Work:
    """What a broker computes for a client that does not get in. The client's own part is not counted."""
    gated.connect()
    found: Work = []

    def ask(token: bytes) -> Any:
        before = len(work)
        answer = gated.ask(SaslAuthenticateRequest(auth_bytes=token))
        found.extend(work[before:])
        return answer

    assert gated.ask(SaslHandshakeRequest(mechanism=caller.mechanism)).error_code == 0
    answer = ask(caller.first())
    if answer is not None:
        assert ask(caller.answered(bytes(answer.auth_bytes)) or b"") is None
    gated.clock.advance(DELAY_S)
    assert gated.connection.is_closed and gated.gates.authenticated == 0
    return found


def both(work: Work, known: SaslCaller, unknown: SaslCaller) -> tuple[Work, Work]:
    gated = Gated()
    return refused(work, gated, known), refused(work, gated, unknown)


def check_plain(work: Work) -> None:
    known, unknown = both(work, plain("alice", "wrong"), plain("nobod", "wrong"))
    assert known and known == unknown


def check_scram(work: Work) -> None:
    for mechanism in ((), (SHA_512,)):
        known, unknown = both(work, scram("alice", "wrong", *mechanism), scram("nobod", "wrong", *mechanism))
        assert len(known) >= 5 and known == unknown


def test_an_unknown_user_of_plain_costs_what_a_wrong_password_costs(work: Work) -> None:
    check_plain(work)


def test_an_unknown_user_of_scram_costs_what_a_wrong_password_costs(work: Work) -> None:
    check_scram(work)


def test_plain_that_looks_up_first_is_noticed(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = PlainServer.evaluate

    def hasty(self: PlainServer, token: bytes) -> Any:
        if token.split(b"\0")[1].decode() not in self._users:
            raise plain_module.SaslRefused("no")
        return evaluate(self, token)

    monkeypatch.setattr(PlainServer, "evaluate", hasty)
    with pytest.raises(AssertionError):
        check_plain(work)


def test_scram_that_makes_a_decoy_only_where_it_needs_one_is_noticed(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ScramServer._begin

    def hasty(self: ScramServer, token: bytes) -> Any:
        stand_in = self._stand_in
        self._stand_in = lambda user: self._credential_of(user) or stand_in(user)
        return begin(self, token)

    monkeypatch.setattr(ScramServer, "_begin", hasty)
    with pytest.raises(AssertionError):
        check_scram(work)
