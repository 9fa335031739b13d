"""Which clients may alter what concerns every client of the cluster.

Where clients do not prove who they are, every client is the user ANONYMOUS. Then an operator differs from a
stranger by the listener, which a firewall or a private address can close. Where the cluster has access
control lists, both the listener and the lists have to allow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ClusterRights:
    """The listeners from which clients may alter client quotas and settings of brokers, reassign partitions,
    elect leaders and abort transactions of others: what Kafka's authorizers ask for as ALTER and
    ALTER_CONFIGS of the cluster and its brokers. None named: every listener."""

    listeners: Annotated[tuple[str, ...], "cluster.alter.listeners"] = ()

    def refusal(
        self, context: RequestContext, what: str, operation: AclOperation = AclOperation.ALTER
    ) -> BrokerError | None:
        """CLUSTER_AUTHORIZATION_FAILED if the client of the request may not do `what`, a phrase such as
        "alter quotas", which access control lists know as an `operation` on the cluster; None if it may. This
        broker itself may do everything."""
        return self._listener_refusal(context, what) or context.denial(operation, AclResource.CLUSTER)

    def _listener_refusal(self, context: RequestContext, what: str) -> BrokerError | None:
        listener = context.listener
        if not self.listeners or not listener or listener in (name.upper() for name in self.listeners):
            return None
        return BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"clients of the listener {listener} may not {what}: use a listener of "
            f"cluster.alter.listeners, which is {','.join(self.listeners)}",
        )

    def check_listener(self, context: RequestContext, what: str) -> None:
        """Raises CLUSTER_AUTHORIZATION_FAILED if clients of the request's listener may not do `what`. Access
        control lists are not asked."""
        refused = self._listener_refusal(context, what)
        if refused is not None:
            raise refused

    def check(self, context: RequestContext, what: str, operation: AclOperation = AclOperation.ALTER) -> None:
        """Raises BrokerError as `refusal` returns it."""
        refused = self.refusal(context, what, operation)
        if refused is not None:
            raise refused


def alter_refusal(
    context: RequestContext, rights: ClusterRights, resource_type: int, name: str
) -> BrokerError | None:
    """Why the client may not alter the settings of a resource of one of the kinds of `ResourceType`; None if
    it may. Those of brokers and of their loggers are the cluster's."""
    if resource_type == ResourceType.TOPIC:
        return context.denial(AclOperation.ALTER_CONFIGS, AclResource.TOPIC, name)
    return rights.refusal(context, "alter settings of brokers", AclOperation.ALTER_CONFIGS)
