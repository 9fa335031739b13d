"""Connections of users whose SCRAM credentials were removed or changed, and the counts of authentications."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.network.connection import ANONYMOUS, ServerConnection
from holdfast_log.broker.rechecks import DELAY_S
from holdfast_log.broker.security.sasl.metrics import SASL_METRICS
from holdfast_log.broker.security.sasl.revocation import PER_TURN, LoginRevocation
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.heartbeat import HeartbeatResponse
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.callers import SaslCaller
from holdfast_log.protocol.sasl.scram import ScramMechanism
from tests.broker.security.sasl.gated import HEARTBEAT, SHA_256, SHA_512, Gated, credentials, plain, scram


class Revoking(Gated):
    """Gates that are told of changes of credentials."""

    def __init__(self, **given: str) -> None:
        super().__init__(**given)
        self.revocation = LoginRevocation(self.gates, self.clock)
        self.users.add_revocation_listener(self.revocation.credentials_changed)

    def logged_in(self, caller: SaslCaller) -> ServerConnection:
        """A connection whose client has authenticated."""
        if self.connection.handler == self.dispatcher.dispatch or self.connection.principal != ANONYMOUS:
            self.connect()
        self.log_in(caller)
        return self.connection

    def alter(self, user: str, configs: dict[str, str]) -> None:
        self.users.configs_changed("users", user, configs)

    def is_closed_by(self, configs: dict[str, str]) -> bool:
        """Whether the connection is closed in time after a change of alice's configs."""
        self.alter("alice", configs)
        assert not self.connection.is_closed
        self.clock.advance(DELAY_S)
        return self.connection.is_closed


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_removed_user_is_gone_within_the_bound(
    mechanism: ScramMechanism,
) -> None:
    gated = Revoking()
    gated.logged_in(scram("alice", "wonderland", mechanism))
    assert gated.is_closed_by({"producer_byte_rate": "1"})
    assert not gated.is_let_through() and gated.heartbeats.principals == []


def test_the_log_says_whose_connection_was_closed_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gated = Revoking()
    gated.logged_in(scram("alice", "wonderland"))
    assert gated.is_closed_by({})
    assert "User:alice" in caplog.text and "was removed or changed" in caplog.text


def test_a_request_that_waits_is_not_answered_any_more() -> None:
    gated, waiting = Revoking(), Deferred[HeartbeatResponse]()
    gated.logged_in(scram("alice", "wonderland"))
    gated.heartbeats.waits_for = waiting
    assert gated.ask(HEARTBEAT) is None
    gated.alter("alice", {})
    gated.clock.advance(DELAY_S)
    waiting.callback(HeartbeatResponse(throttle_time_ms=0, error_code=0))
    assert not gated.wire.data


def test_a_password_that_was_changed_keeps_nobody() -> None:
    gated = Revoking()
    gated.logged_in(scram("alice", "wonderland"))
    assert gated.is_closed_by(dict(credentials("looking glass")))


def test_a_session_that_ends_by_itself_is_ended_too() -> None:
    gated = Revoking(listener_name_clients_connections_max_reauth_ms="60000")
    gated.logged_in(scram("alice", "wonderland"))
    assert gated.is_closed_by({})


def test_a_client_in_the_midst_of_authenticating_again_is_closed_too() -> None:
    gated = Revoking(listener_name_clients_connections_max_reauth_ms="60000")
    gated.logged_in(scram("alice", "wonderland"))
    gated.clock.advance(2)
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    assert gated.is_closed_by({})


def test_a_client_that_has_the_new_password_by_then_stays() -> None:
    gated = Revoking(listener_name_clients_connections_max_reauth_ms="60000")
    gated.logged_in(scram("alice", "wonderland"))
    gated.clock.advance(2)
    gated.alter("alice", dict(credentials("looking glass")))
    assert gated.log_in(scram("alice", "looking glass")) == 60_000
    gated.clock.advance(DELAY_S)
    assert gated.is_let_through()


def test_others_stay() -> None:
    """Other users, other mechanisms of the user, and whoever has not authenticated by SCRAM."""
    gated = Revoking()
    callers = [scram("carol", "christmas"), scram("alice", "wonderland", SHA_512), plain("alice", "hers")]
    connections = [gated.logged_in(caller) for caller in callers]
    kept = {name: value for name, value in credentials("wonderland").items() if name == "SCRAM-SHA-512"}
    gated.logged_in(scram("alice", "wonderland"))
    assert gated.is_closed_by(kept)
    assert not any(each.is_closed for each in connections)


def test_a_change_of_quotas_closes_nothing() -> None:
    gated = Revoking()
    gated.logged_in(scram("alice", "wonderland"))
    assert not gated.is_closed_by({**credentials("wonderland"), "producer_byte_rate": "1"})
    assert gated.is_let_through() and not gated.clock.getDelayedCalls()


def test_who_has_begun_with_the_old_password_does_not_get_in_with_it() -> None:
    gated, caller = Revoking(), scram("alice", "wonderland")
    gated.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    answer = gated.ask(SaslAuthenticateRequest(auth_bytes=caller.first()))
    proof = caller.answered(bytes(answer.auth_bytes))
    gated.alter("alice", {})
    gated.send(SaslAuthenticateRequest(auth_bytes=proof or b""))
    gated.clock.advance(0.1)
    assert gated.gates.authenticated == 0 and gated.connection.is_closed


def test_the_check_goes_on_after_one_turn() -> None:
    gated = Revoking()
    connections = [gated.logged_in(plain("alice", "hers")) for _ in range(PER_TURN)]
    gated.logged_in(scram("alice", "wonderland"))
    assert gated.is_closed_by({})
    assert not any(each.is_closed for each in connections)


def test_a_broker_that_stops_checks_nothing() -> None:
    gated = Revoking()
    gated.logged_in(scram("alice", "wonderland"))
    gated.alter("alice", {})
    gated.revocation.stop()
    assert not gated.clock.getDelayedCalls()


def counts(gated: Gated) -> dict[str, list[float]]:
    """The counts of the listener for clients, by the last words of the metric, and those of all others."""
    found: dict[str, list[float]] = {}
    for row in SASL_METRICS:
        name = row.name.removeprefix("kafka_server_socket_server_metrics_")
        assert row.labels == ("listener", "networkProcessor")
        for sample in row.read(gated.gates):
            if sample.labels == ("CLIENTS", "0"):
                found.setdefault(name.removesuffix("_total"), []).append(sample.value)
            else:
                assert sample.value == 0
    return found


def test_authentications_are_counted_by_listener() -> None:
    gated = Gated(listener_name_clients_connections_max_reauth_ms="60000")
    gated.log_in(scram("alice", "wonderland"))
    for _ in range(2):
        gated.clock.advance(2)
        gated.log_in(scram("alice", "wonderland"))
    gated.clock.advance(2)
    assert gated.refusal(scram("alice", "x")).code is ErrorCode.SASL_AUTHENTICATION_FAILED
    for attempt in range(3):
        gated.connect()
        gated.send(HEARTBEAT) if attempt else gated.refusal(plain("alice", "x"))
    assert counts(gated) == {
        "successful_authentication": [1],
        "failed_authentication": [3],
        "successful_reauthentication": [2],
        "failed_reauthentication": [1],
    }
