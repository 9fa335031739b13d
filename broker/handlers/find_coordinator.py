"""FindCoordinator (key 10): which broker coordinates a consumer group.

Versions: from 1 on the kind of key is named (0: group, 1: transaction), from 4 on several keys may be asked
for at once (KIP-699).

The first lookup of a group creates `__consumer_offsets`. The response does not wait for the topic, because
that would delay the client's later requests on the connection. Until the topic exists the response is
COORDINATOR_NOT_AVAILABLE, and clients retry.

This broker has no transactions, and advertises only version 0, as brokers did before there were transactions.
All stock clients report that as a missing feature (docs/transactions.md). A client that sends a later version
nevertheless gets UNSUPPORTED_VERSION for a transactional id.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.offsets_topic import OffsetsTopic
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    NO_TRANSACTIONS,
    Handler,
    RequestContext,
    RowPaths,
)
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)

GROUP = 0
TRANSACTION = 1
_FIRST_VERSION_WITH_SEVERAL_KEYS = 4


@dataclass(eq=False)
class FindCoordinatorHandler(Handler[FindCoordinatorRequest, FindCoordinatorResponse]):
    request = FindCoordinatorRequest
    parts = (RowPaths(("coordinator_keys",), ("coordinators",)),)
    elements_max = ANY_ELEMENTS
    topic: OffsetsTopic
    metadata: MetadataCache
    identity: BrokerIdentity

    def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if request.key_type == TRANSACTION:
            for key in _keys(context, request):
                context.check(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, key)
            context.note_refused("requests with a transactional id", NO_TRANSACTIONS)
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, NO_TRANSACTIONS)
        if request.key_type != GROUP:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is unknown: 0 is a group"
            )
        return _response(context, [self._find(context, key) for key in _keys(context, request)])

    def _find(self, context: RequestContext, group_id: str) -> FoundCoordinator:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if denied is not None:
            return _failed(group_id, denied)
        self.topic.ensure()
        try:
            node = self.metadata.brokers.get(self.topic.leader_of(group_id))
            endpoint = (
                None
                if node is None
                else node.endpoint(context.listener or self.identity.inter_broker_listener)
            )
            if node is None or endpoint is None:
                raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except BrokerError as error:
            return _failed(group_id, error)
        return FoundCoordinator(
            key=group_id, node_id=node.id, host=endpoint[0], port=endpoint[1], error_code=0
        )

    def failed(
        self, context: RequestContext, request: FindCoordinatorRequest, error: BrokerError
    ) -> FindCoordinatorResponse:
        return _response(context, [_failed(key, error) for key in _keys(context, request)])


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if context.version >= _FIRST_VERSION_WITH_SEVERAL_KEYS else [request.key]


def _failed(key: str, error: BrokerError) -> FoundCoordinator:
    return FoundCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
    )


def _response(context: RequestContext, coordinators: list[FoundCoordinator]) -> FindCoordinatorResponse:
    if context.version >= _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(coordinators=coordinators)
    (found,) = coordinators
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
