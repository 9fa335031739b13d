"""How two brokers prove to each other that they have the cluster's secret, without sending it.

Each side draws a nonce, and makes an HMAC (SHA-256) of both nonces, both brokers' ids, the cluster's id and
the side's name. So a proof fits one connection between two brokers in one direction only, and nobody can send
a side's own proof back to it. The caller proves first: who only connects gets nothing with which it could try
out secrets.

The exchange does not protect what follows on the connection: that is for TLS.

States of the caller's side, and what ends each:

    asked      the answerer's nonce: proved     an error: failed, or done without proofs
    proved     the answerer's proof: done       an error, or a wrong proof: failed
"""

from __future__ import annotations

import enum
import hmac
from dataclasses import dataclass

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.authenticate_broker import (
    AuthenticateBrokerRequest,
    AuthenticateBrokerResponse,
)

NONCE_BYTES = 32
_SET_OR_NOT = "set cluster.secret.file to the same content for all brokers"


class HandshakeError(Exception):
    """The other broker is not known to be one of this cluster; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """What all brokers of a cluster know, and nobody else. This broker proves with the first key, and accepts
    the others too: so a secret can be replaced while the cluster runs."""

    keys: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"ClusterSecret({len(self.keys)} keys)"

    def key_of(self, exchange: Handshake, proof: bytes) -> bytes | None:
        """The key with which the exchange's caller has made this proof; None if it has none of them."""
        for key in self.keys:
            if hmac.compare_digest(exchange.proof_of_caller(key), proof):
                return key
        return None


@dataclass(frozen=True, slots=True)
class Handshake:
    """One connection between two brokers: who has opened it, to whom, and the nonces of both."""

    cluster_id: str
    caller_id: int
    answerer_id: int
    caller_nonce: bytes
    answerer_nonce: bytes

    def proof_of_caller(self, key: bytes) -> bytes:
        return self._proof(key, b"caller")

    def proof_of_answerer(self, key: bytes) -> bytes:
        return self._proof(key, b"answerer")

    def _proof(self, key: bytes, side: bytes) -> bytes:
        digest = hmac.new(key, digestmod="sha256")
        ids = f"{self.caller_id} {self.answerer_id}".encode()
        for part in (
            b"holdfast",
            side,
            self.cluster_id.encode(),
            ids,
            self.caller_nonce,
            self.answerer_nonce,
        ):
            digest.update(len(part).to_bytes(4) + part)
        return digest.digest()


class CallerState(enum.Enum):
    """The caller's side of a handshake; its table is at the top of this file."""

    ASKED = enum.auto()
    PROVED = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


class CallerHandshake:
    """The side of the broker that opens a connection. Without I/O.

    With `is_optional` the handshake also ends well if the other broker has no secret
    (`broker.listeners.trusted`).
    """

    def __init__(
        self,
        secret: ClusterSecret,
        cluster_id: str,
        caller_id: int,
        answerer_id: int,
        nonce: bytes,
        *,
        is_optional: bool = False,
    ) -> None:
        self.state = CallerState.ASKED
        self._key = secret.keys[0]
        self._ids = cluster_id, caller_id, answerer_id
        self._nonce = nonce
        self._is_optional = is_optional
        self._exchange: Handshake | None = None

    def first(self) -> AuthenticateBrokerRequest:
        """The request that begins the handshake."""
        return self._request(b"")

    def answered(self, response: AuthenticateBrokerResponse) -> AuthenticateBrokerRequest | None:
        """The request that follows this answer; None once the handshake is done. Raises HandshakeError."""
        if response.error_code != ErrorCode.NONE:
            self._refused(response)
            return None
        if self.state is CallerState.ASKED:
            return self._prove(response.nonce)
        assert self.state is CallerState.PROVED and self._exchange is not None
        if not hmac.compare_digest(self._exchange.proof_of_answerer(self._key), response.proof):
            raise self._failed(f"it has not proved that it has the cluster's secret: {_SET_OR_NOT}")
        self.state = CallerState.DONE
        return None

    def _prove(self, answerer_nonce: bytes) -> AuthenticateBrokerRequest:
        if len(answerer_nonce) != NONCE_BYTES:
            raise self._failed(f"its nonce has {len(answerer_nonce)} bytes instead of {NONCE_BYTES}")
        self._exchange = Handshake(*self._ids, self._nonce, answerer_nonce)
        self.state = CallerState.PROVED
        return self._request(self._exchange.proof_of_caller(self._key))

    def _refused(self, response: AuthenticateBrokerResponse) -> None:
        has_no_secret = response.error_code == ErrorCode.SECURITY_DISABLED
        if has_no_secret and self._is_optional and self.state is CallerState.ASKED:
            self.state = CallerState.DONE
            return
        raise self._failed(f"it refused this broker: {response.error_message or response.error_code}")

    def _failed(self, reason: str) -> HandshakeError:
        self.state = CallerState.FAILED
        return HandshakeError(reason)

    def _request(self, proof: bytes) -> AuthenticateBrokerRequest:
        return AuthenticateBrokerRequest(broker_id=self._ids[1], nonce=self._nonce, proof=proof)
