"""SaslHandshake (key 17): the client of a SASL listener chooses a mechanism (KIP-43, KIP-152).

In version 0 the tokens that follow have no headers. Elsewhere than at a SASL listener the answer is
ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.handler import Answer, Handler, RequestContext
from holdfast_log.broker.security.sasl.gates import SaslGates
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@dataclass(eq=False)
class SaslHandshakeHandler(Handler[SaslHandshakeRequest, SaslHandshakeResponse]):
    request = SaslHandshakeRequest
    gates: SaslGates

    def handle(self, context: RequestContext, request: SaslHandshakeRequest) -> Answer[SaslHandshakeResponse]:
        session = self.gates.session(context.connection)
        if session is None:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE)
        return session.handshake(context.version, request.mechanism)

    def failed(
        self, context: RequestContext, request: SaslHandshakeRequest, error: BrokerError
    ) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=[])
