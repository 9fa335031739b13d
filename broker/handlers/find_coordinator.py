"""FindCoordinator (key 10): which broker coordinates a consumer group.

Versions: from 1 on the kind of key is named (0: group, 1: transaction), from 4 on several keys may be asked
for at once (KIP-699).

Until a coordinator is installed every group is answered COORDINATOR_NOT_AVAILABLE, which clients retry.
Transactional ids are refused for good: there are no transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.call import Call, Handler
from broker.metadata import MetadataCache
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
_FIRST_VERSION_WITH_SEVERAL_KEYS = 4


def no_coordinator(group: str) -> int:
    """The coordinator of a group as long as there are no groups. Raises COORDINATOR_NOT_AVAILABLE."""
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has no consumer groups")


@dataclass(eq=False)
class FindCoordinatorHandler(Handler[FindCoordinatorRequest, FindCoordinatorResponse]):
    """`coordinator_of` gives the broker that coordinates a group, or raises BrokerError."""

    request = FindCoordinatorRequest
    metadata: MetadataCache
    default_listener: str
    coordinator_of: Callable[[str], int] = no_coordinator

    def handle(self, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if call.version >= _FIRST_VERSION_WITH_SEVERAL_KEYS:
            return FindCoordinatorResponse(
                coordinators=[self._find(call, request, key) for key in request.coordinator_keys]
            )
        found = self._find(call, request, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, call: Call, request: FindCoordinatorRequest, key: str) -> Coordinator:
        try:
            if request.key_type != GROUP:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "this broker has no transactions")
            node = self.metadata.brokers.get(self.coordinator_of(key))
            endpoint = None if node is None else node.endpoint(call.listener or self.default_listener)
            if node is None or endpoint is None:
                raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except BrokerError as error:
            return Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
            )
        return Coordinator(key=key, node_id=node.id, host=endpoint[0], port=endpoint[1], error_code=0)
