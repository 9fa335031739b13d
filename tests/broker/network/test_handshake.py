"""Two brokers prove to each other that they have the cluster's secret; nobody else can, and nobody learns
it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.handlers.authenticate_broker import AuthenticateBrokerHandler
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.handshake import (
    NONCE_BYTES,
    CallerHandshake,
    CallerState,
    ClusterSecret,
    Handshake,
    HandshakeError,
)
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.authenticate_broker import (
    AuthenticateBrokerRequest,
    AuthenticateBrokerResponse,
)
from tests.models.wires import FakeWire

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
SECRET = ClusterSecret((KEY,))
CLUSTER = "cluster"
CALLER, ANSWERER = 1, 2
NONCE = bytes(range(NONCE_BYTES))
EXCHANGE = Handshake(CLUSTER, CALLER, ANSWERER, NONCE, NONCE[::-1])


class Answerer:
    """A broker with id `ANSWERER`, and one connection to it from a client."""

    def __init__(self, secret: ClusterSecret | None = SECRET, seed: int = 1) -> None:
        dispatcher = Dispatcher(RepeatedLog(Clock()))
        identity = BrokerIdentity(ANSWERER, CLUSTER, "PLAINTEXT")
        dispatcher.add([AuthenticateBrokerHandler(identity, secret, random.Random(seed))])
        self.wire = FakeWire()
        self.connection = ServerConnection(
            1, "PLAINTEXT", self.wire.peer, dispatcher.dispatch, ConnectionLimits(1000, 1000, 10), Clock()
        )
        self.connection.connected(self.wire)

    def ask(self, request: AuthenticateBrokerRequest) -> AuthenticateBrokerResponse:
        frame = bytearray(join_parts(encode_request(request, 0, 1, "test"))[4:])
        self.connection.frames_received([memoryview(frame)])
        (answer,) = self.wire.frames()
        return decode_response(AuthenticateBrokerRequest, 0, answer)

    def shake_hands(self, caller: CallerHandshake) -> None:
        request: AuthenticateBrokerRequest | None = caller.first()
        while request is not None:
            request = caller.answered(self.ask(request))


def caller(
    secret: ClusterSecret = SECRET,
    *,
    cluster: str = CLUSTER,
    to: int = ANSWERER,
    is_optional: bool = False,
) -> CallerHandshake:
    return CallerHandshake(secret, cluster, CALLER, to, NONCE, is_optional=is_optional)


def test_two_brokers_with_the_secret_know_each_other() -> None:
    answerer, calling = Answerer(), caller()
    assert not answerer.connection.is_broker
    answerer.shake_hands(calling)
    assert calling.state is CallerState.DONE
    assert answerer.connection.is_broker


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((KEY, OTHER_KEY), (KEY,)), ((KEY,), (OTHER_KEY, KEY)), ((OTHER_KEY, KEY), (KEY, OTHER_KEY))],
)
def test_a_secret_is_replaced_while_brokers_accept_both(
    ours: tuple[bytes, ...], theirs: tuple[bytes, ...]
) -> None:
    answerer, calling = Answerer(ClusterSecret(theirs)), caller(ClusterSecret(ours))
    answerer.shake_hands(calling)
    assert calling.state is CallerState.DONE and answerer.connection.is_broker


@pytest.mark.parametrize(
    "calling",
    [
        caller(ClusterSecret((OTHER_KEY,))),
        caller(ClusterSecret((OTHER_KEY, KEY))),
        caller(cluster="another cluster"),
        caller(to=3),
    ],
    ids=["another secret", "a secret that the other does not have yet", "another cluster", "another broker"],
)
def test_a_wrong_proof_is_refused_with_what_to_do(
    calling: CallerHandshake, caplog: pytest.LogCaptureFixture
) -> None:
    answerer = Answerer()
    with pytest.raises(HandshakeError, match=r"set cluster.secret.file to the same content on all brokers"):
        answerer.shake_hands(calling)
    assert calling.state is CallerState.FAILED
    assert not answerer.connection.is_broker
    assert "cluster.secret.file" in caplog.text


def why_refused(step: Callable[[], object]) -> str:
    """The error of a step of a handshake; empty if there is none."""
    try:
        step()
    except HandshakeError as error:
        return str(error)
    return ""


def test_a_connection_has_one_attempt() -> None:
    answerer = Answerer()
    wrong = why_refused(lambda: answerer.shake_hands(caller(ClusterSecret((OTHER_KEY,)))))
    assert "another secret" in wrong
    assert "one handshake" in why_refused(lambda: answerer.shake_hands(caller()))
    assert not answerer.connection.is_broker


def test_a_proof_that_was_overheard_is_worth_nothing_on_another_connection() -> None:
    first, second = Answerer(seed=1), Answerer(seed=2)
    calling = caller()
    heard = calling.answered(first.ask(calling.first()))
    assert heard is not None
    assert first.ask(heard).error_code == ErrorCode.NONE
    second.ask(calling.first())
    assert second.ask(heard).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not second.connection.is_broker


def test_a_proof_without_a_question_is_refused() -> None:
    answerer = Answerer()
    proof = EXCHANGE.proof_of_caller(KEY)
    request = AuthenticateBrokerRequest(broker_id=CALLER, nonce=NONCE, proof=proof)
    assert answerer.ask(request).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert not answerer.connection.is_broker


@pytest.mark.parametrize("size", [0, 1, NONCE_BYTES - 1, NONCE_BYTES + 1])
def test_a_nonce_has_its_length(size: int) -> None:
    request = AuthenticateBrokerRequest(broker_id=CALLER, nonce=bytes(size))
    assert Answerer().ask(request).error_code == ErrorCode.INVALID_REQUEST
    with pytest.raises(HandshakeError, match="nonce"):
        caller().answered(AuthenticateBrokerResponse(error_code=ErrorCode.NONE, nonce=bytes(size)))


def test_who_only_asks_gets_nothing_that_was_made_with_the_secret() -> None:
    answerer = Answerer()
    answer = answerer.ask(caller().first())
    assert answer.proof == b""
    assert bytes(answer.nonce) == random.Random(1).randbytes(NONCE_BYTES)
    wrong = AuthenticateBrokerRequest(broker_id=CALLER, nonce=NONCE, proof=bytes(32))
    refused = answerer.ask(wrong)
    assert (refused.error_code, refused.proof, refused.nonce) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        b"",
        b"",
    )


def test_a_broker_that_cannot_prove_itself_gets_no_requests() -> None:
    calling = caller()
    proof = calling.answered(AuthenticateBrokerResponse(error_code=ErrorCode.NONE, nonce=NONCE[::-1]))
    assert proof is not None
    echoed = AuthenticateBrokerResponse(error_code=ErrorCode.NONE, nonce=NONCE[::-1], proof=proof.proof)
    assert "has not proved that it has the cluster's secret" in why_refused(lambda: calling.answered(echoed))
    assert calling.state is CallerState.FAILED


@pytest.mark.parametrize(
    "other",
    [
        replace(EXCHANGE, cluster_id="another"),
        replace(EXCHANGE, caller_id=3),
        replace(EXCHANGE, answerer_id=3),
        replace(EXCHANGE, caller_nonce=NONCE[::-1]),
        replace(EXCHANGE, answerer_nonce=NONCE),
        Handshake(CLUSTER, ANSWERER, CALLER, NONCE, NONCE[::-1]),
        replace(EXCHANGE, caller_nonce=NONCE + b"x", answerer_nonce=NONCE[::-1][1:]),
    ],
)
def test_a_proof_fits_one_exchange_and_one_side(other: Handshake) -> None:
    proofs = {each.proof_of_caller(KEY) for each in (EXCHANGE, other)}
    proofs |= {each.proof_of_answerer(KEY) for each in (EXCHANGE, other)}
    assert len(proofs) == 4
    assert EXCHANGE.proof_of_caller(OTHER_KEY) not in proofs


def test_a_broker_without_a_secret_is_accepted_only_while_the_cluster_changes() -> None:
    calling = caller(is_optional=True)
    Answerer(secret=None).shake_hands(calling)
    assert calling.state is CallerState.DONE
    with pytest.raises(HandshakeError, match=r"this broker has no cluster.secret.file"):
        Answerer(secret=None).shake_hands(caller())


def test_the_secret_is_not_shown() -> None:
    assert "k" * 8 not in repr(SECRET)
