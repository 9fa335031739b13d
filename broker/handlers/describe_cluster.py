"""DescribeCluster (key 60): the cluster's id, its controller and its brokers (KIP-700).

Versions: version 1 asks for brokers (1) or KRaft controllers (2). Holdfast has no KRaft controllers.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.operations import NOT_ASKED, authorized_operations
from holdfast_log.protocol.acls import AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


@dataclass(eq=False)
class DescribeClusterHandler(Handler[DescribeClusterRequest, DescribeClusterResponse]):
    request = DescribeClusterRequest
    metadata: MetadataCache
    identity: BrokerIdentity
    first_update: FirstUpdate

    def handle(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse | Deferred[DescribeClusterResponse]:
        if request.endpoint_type != BROKERS:
            raise BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
        return self.first_update.then(lambda: self._answer(context, request))

    def _answer(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        listener = context.listener or self.identity.inter_broker_listener
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            cluster_id=self.identity.cluster_id,
            controller_id=self.metadata.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=node.id, host=endpoint[0], port=endpoint[1], rack=node.rack)
                for node in self.metadata.brokers.values()
                if (endpoint := node.endpoint(listener)) is not None
            ],
            cluster_authorized_operations=(
                authorized_operations(context, AclResource.CLUSTER)
                if request.include_cluster_authorized_operations
                else NOT_ASKED
            ),
        )

    def failed(
        self, context: RequestContext, request: DescribeClusterRequest, error: BrokerError
    ) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=error.message,
            cluster_id=self.identity.cluster_id,
            brokers=[],
        )
