"""SaslAuthenticate (key 36): a token of the mechanism that the client has chosen (KIP-152, KIP-368).

Elsewhere than at a SASL listener the answer is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.handler import Answer, Handler, RequestContext
from holdfast_log.broker.security.sasl.gates import SaslGates
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

_NOT_HERE = "this listener wants no authentication: set security.protocol to that of the listener"


@dataclass(eq=False)
class SaslAuthenticateHandler(Handler[SaslAuthenticateRequest, SaslAuthenticateResponse]):
    request = SaslAuthenticateRequest
    gates: SaslGates

    def handle(
        self, context: RequestContext, request: SaslAuthenticateRequest
    ) -> Answer[SaslAuthenticateResponse]:
        session = self.gates.session(context.connection)
        if session is None:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE, _NOT_HERE)
        return session.token(bytes(request.auth_bytes))

    def failed(
        self, context: RequestContext, request: SaslAuthenticateRequest, error: BrokerError
    ) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message, auth_bytes=b"")
