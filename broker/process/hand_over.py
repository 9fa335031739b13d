"""Controlled shutdown: a stopping broker first has the controller move its leadership to other brokers.

The leader acknowledges a write with acks=1 before any follower has copied it. To lose no such record, the
leader first refuses further writes with acks=1, and waits until its in-sync followers have copied the earlier
ones. Writes with acks=all need no such pause: they are acknowledged only when all in-sync replicas have them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from twisted.internet.defer import Deferred, DeferredList

from holdfast_log.broker.network.outbound import ChannelError
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.settings.rows import BROKER_ROWS
from holdfast_log.broker.wiring.cluster import ClusterParts
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.pause import pause
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.controlled_shutdown import ControlledShutdownRequest

_POLL_MS = 10

_log = logging.getLogger(__name__)


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class HandOverSettings:
    """Whether a stopping broker hands over its leadership, and how often it tries."""

    is_enabled: Annotated[bool, "controlled.shutdown.enable"]
    retries_max: Annotated[int, "controlled.shutdown.max.retries"]
    retry_backoff_ms: Annotated[int, "controlled.shutdown.retry.backoff.ms"]
    catch_up_ms: Annotated[int, "controlled.shutdown.catch.up.ms"]


async def hand_over(
    cluster: ClusterParts,
    replicas: Replicas,
    right: RightToConfirm,
    settings: HandOverSettings,
    clock: Clock,
) -> None:
    """Have the controller move this broker's leadership away. Repeats the request, up to the number of
    retries, while this broker leads partitions that another live broker could lead. From the first request on
    this broker confirms no ownership: the controller may have moved the leadership already."""
    tries = 1 + settings.retries_max
    for number in range(1, tries + 1):
        if _is_alone(cluster):
            return
        await _followers_catch_up(replicas, settings.catch_up_ms, clock)
        right.hand_over()
        outcome = await _ask(cluster)
        if outcome is None:
            return
        _log.warning("Controlled shutdown, attempt %d of %d failed: %s", number, tries, outcome)
        if number < tries:
            replicas.end_hand_over()
            await _pause(cluster, settings.retry_backoff_ms / 1000, clock)


async def _followers_catch_up(replicas: Replicas, timeout_ms: int, clock: Clock) -> None:
    """Refuse further writes with acks=1, and wait until the in-sync followers have all earlier ones."""
    behind = replicas.begin_hand_over()
    for _ in range(timeout_ms // _POLL_MS):
        behind = [last for last in behind if not last.is_copied()]
        if not behind:
            return
        await pause(clock, _POLL_MS / 1000)
    if behind:
        _log.warning(
            "The in-sync followers of %d partitions, the first of them %s, have not copied all records "
            "within %d ms (controlled.shutdown.catch.up.ms); records written with acks=1 may be lost",
            len(behind),
            behind[0].partition.key,
            timeout_ms,
        )


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
