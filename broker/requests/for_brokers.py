"""What clients get from the APIs that are internal to a cluster: a refusal, whatever they ask for."""

from __future__ import annotations

from typing import Any

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode

_ONLY_BROKERS = "only brokers may send this request, on their own listener or with the cluster's secret"


class ForBrokers(Handler[Any, Any]):
    """Refuses the requests of an internal API: takes the place of its handler for clients."""

    def __init__(self, handler: Handler[Any, Any]) -> None:
        self.request = handler.request  # type: ignore[misc]
        self._handler = handler

    def handle(self, context: RequestContext, request: Request[Any]) -> None:
        context.note_refused(
            "requests of clients that are for brokers only", f"{request.api.name} is for brokers"
        )
        # Denied for the audit log, if so. It is refused in any case: a right does not make it a broker.
        context.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _ONLY_BROKERS)

    def failed(self, context: RequestContext, request: Request[Any], error: BrokerError) -> Response | None:
        return self._handler.failed(context, request, error)
