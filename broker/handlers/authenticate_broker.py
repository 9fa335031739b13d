"""AuthenticateBroker (key 30031, between brokers): another broker proves that it has the cluster's secret,
and its connection counts as a broker's from then on. A connection has one attempt."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.handshake import NONCE_BYTES, ClusterSecret, Handshake
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.authenticate_broker import (
    AuthenticateBrokerRequest,
    AuthenticateBrokerResponse,
)

_NO_SECRET = "this broker has no cluster.secret.file: set the same one on all brokers, or on none"
_WRONG = "the proof was made with another secret: set cluster.secret.file to the same content on all brokers"


@dataclass(eq=False)
class AuthenticateBrokerHandler(Handler[AuthenticateBrokerRequest, AuthenticateBrokerResponse]):
    request = AuthenticateBrokerRequest
    is_for_everybody: ClassVar[bool] = True
    identity: BrokerIdentity
    secret: ClusterSecret | None
    random: random.Random

    def handle(
        self, context: RequestContext, request: AuthenticateBrokerRequest
    ) -> AuthenticateBrokerResponse:
        connection = context.connection
        if self.secret is None or connection is None:
            raise BrokerError(ErrorCode.SECURITY_DISABLED, _NO_SECRET)
        if len(request.nonce) != NONCE_BYTES:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"a nonce has {NONCE_BYTES} bytes")
        if not request.proof:
            return self._begin(connection, request)
        return self._judge(context, connection, request, self.secret)

    def _begin(
        self, connection: ServerConnection, request: AuthenticateBrokerRequest
    ) -> AuthenticateBrokerResponse:
        if connection.has_handshake:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE, "a connection has one handshake")
        nonce = self.random.randbytes(NONCE_BYTES)
        connection.begin_handshake(
            Handshake(
                self.identity.cluster_id,
                request.broker_id,
                self.identity.broker_id,
                bytes(request.nonce),
                nonce,
            )
        )
        return AuthenticateBrokerResponse(error_code=ErrorCode.NONE, nonce=nonce)

    def _judge(
        self,
        context: RequestContext,
        connection: ServerConnection,
        request: AuthenticateBrokerRequest,
        secret: ClusterSecret,
    ) -> AuthenticateBrokerResponse:
        exchange = connection.end_handshake()
        if (
            exchange is None
            or exchange.caller_nonce != request.nonce
            or exchange.caller_id != request.broker_id
        ):
            raise BrokerError(
                ErrorCode.ILLEGAL_SASL_STATE, "the proof belongs to no handshake of this connection"
            )
        key = secret.key_of(exchange, bytes(request.proof))
        if key is None:
            context.note_refused("brokers that lack the cluster's secret", _WRONG)
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, _WRONG)
        connection.count_as_broker()
        return AuthenticateBrokerResponse(
            error_code=ErrorCode.NONE, nonce=exchange.answerer_nonce, proof=exchange.proof_of_answerer(key)
        )

    def failed(
        self, context: RequestContext, request: AuthenticateBrokerRequest, error: BrokerError
    ) -> AuthenticateBrokerResponse:
        return AuthenticateBrokerResponse(error_code=error.code, error_message=error.message)
