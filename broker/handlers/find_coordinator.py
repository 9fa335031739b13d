"""FindCoordinator (key 10): which broker coordinates a consumer group, or a transactional id.

Versions: from 1 on the kind of key is named (0: group, 1: transaction), from 4 on several keys may be asked
for at once (KIP-699).

The first lookup of a key creates the topic that stores such keys, `__consumer_offsets` or
`__transaction_state`. The response does not wait for the topic, because that would delay the client's later
requests on the connection. Until the topic exists the response is COORDINATOR_NOT_AVAILABLE, and clients
retry.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.internal_topic import InternalTopic
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.offsets_topic import OffsetsTopic
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    Handler,
    RequestContext,
    RowPaths,
)
from holdfast_log.broker.transactions.state_topic import TransactionsTopic
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
    transactions_topic: TransactionsTopic
    metadata: MetadataCache
    identity: BrokerIdentity

    def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if request.key_type not in (GROUP, TRANSACTION):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"key type {request.key_type} is unknown: 0 is a group, 1 a transactional id",
            )
        found = [self._find(context, request.key_type, key) for key in _keys(context, request)]
        return _response(context, found)

    def _find(self, context: RequestContext, key_type: int, key: str) -> FoundCoordinator:
        is_group = key_type == GROUP
        kind = AclResource.GROUP if is_group else AclResource.TRANSACTIONAL_ID
        denied = context.denial(AclOperation.DESCRIBE, kind, key)
        if denied is not None:
            return _failed(key, denied)
        topic: InternalTopic = self.topic if is_group else self.transactions_topic
        topic.ensure()
        try:
            node = self.metadata.brokers.get(topic.leader_of(key))
            endpoint = (
                None
                if node is None
                else node.endpoint(context.listener or self.identity.inter_broker_listener)
            )
            if node is None or endpoint is None:
                raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except BrokerError as error:
            return _failed(key, error)
        return FoundCoordinator(key=key, node_id=node.id, host=endpoint[0], port=endpoint[1], error_code=0)

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
