"""Which clients may alter what concerns every client of the cluster.

Brokers know no credentials: every client is the user ANONYMOUS. So an operator differs from a stranger by the
listener, which a firewall or a private address can close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.protocol.errors import BrokerError, ErrorCode


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ClusterRights:
    """The listeners from which clients may alter client quotas and settings of brokers, reassign partitions
    and elect leaders: what Kafka's authorizers ask for as ALTER and ALTER_CONFIGS of the cluster and its
    brokers. None named: every listener."""

    listeners: Annotated[tuple[str, ...], "cluster.alter.listeners"] = ()

    def refusal(self, context: RequestContext, what: str) -> BrokerError | None:
        """CLUSTER_AUTHORIZATION_FAILED if the client of the request may not do `what`, a phrase such as
        "alter quotas"; None if it may. This broker itself may do everything."""
        if not self.listeners or context.listener is None:
            return None
        if context.listener in (name.upper() for name in self.listeners):
            return None
        return BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"clients of the listener {context.listener} may not {what}: use a listener of "
            f"cluster.alter.listeners, which is {','.join(self.listeners)}",
        )

    def check(self, context: RequestContext, what: str) -> None:
        """Raises BrokerError as `refusal` returns it."""
        refused = self.refusal(context, what)
        if refused is not None:
            raise refused
