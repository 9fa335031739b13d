"""Controlled shutdown: a stopping broker first has the controller move its leadership to other brokers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from twisted.internet.defer import Deferred, DeferredList

from broker.network.outbound import ChannelError
from broker.setting_groups import settings_group
from broker.settings.rows import BROKER_ROWS
from broker.wiring.cluster import ClusterParts
from coordinator.clock import Clock
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.controlled_shutdown import ControlledShutdownRequest

_log = logging.getLogger(__name__)


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class HandOverSettings:
    """Whether a stopping broker hands over its leadership, and how often it tries."""

    is_enabled: Annotated[bool, "controlled.shutdown.enable"]
    retries_max: Annotated[int, "controlled.shutdown.max.retries"]
    retry_backoff_ms: Annotated[int, "controlled.shutdown.retry.backoff.ms"]


async def hand_over(cluster: ClusterParts, settings: HandOverSettings, clock: Clock) -> None:
    """Have the controller move this broker's leadership to other brokers. Repeats the request, up to the
    number of retries, while partitions remain that another live broker could lead."""
    tries = 1 + settings.retries_max
    for number in range(1, tries + 1):
        if _is_alone(cluster):
            return
        outcome = await _ask(cluster)
        if outcome is None:
            return
        _log.warning("Controlled shutdown, attempt %d of %d failed: %s", number, tries, outcome)
        if number < tries:
            await _pause(cluster, settings.retry_backoff_ms / 1000, clock)


def _is_alone(cluster: ClusterParts) -> bool:
    return all(broker_id == cluster.identity.broker_id for broker_id in cluster.metadata.brokers)


async def _ask(cluster: ClusterParts) -> str | None:
    """Send the request once. Returns the reason of a failure, or None."""
    request = ControlledShutdownRequest(
        broker_id=cluster.identity.broker_id, broker_epoch=cluster.membership.broker_epoch
    )
    try:
        response = await cluster.active_controller.ask(request)
    except (ChannelError, BrokerError) as error:
        return str(error)
    if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
        return None
    left = len(response.remaining_partitions)
    return (
        f"the controller answered error code {response.error_code}; this broker still leads {left} partitions"
    )


async def _pause(cluster: ClusterParts, seconds: float, clock: Clock) -> None:
    """Wait for `seconds`, or until no other broker is alive."""
    over: Deferred[None] = Deferred()
    timer = clock.callLater(seconds, over.callback, None)
    while not over.called and not _is_alone(cluster):
        await DeferredList([over, cluster.metadata.next_update()], fireOnOneCallback=True)
    if timer.active():
        timer.cancel()
