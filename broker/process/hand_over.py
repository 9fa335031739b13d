"""Controlled shutdown, as the broker that stops sees it: leadership moves away before anybody misses it."""

from __future__ import annotations

import logging

from twisted.internet.defer import Deferred, DeferredList

from broker.network.outbound import ChannelError
from broker.wiring.node import WiredBroker
from clients.settings import Settings
from coordinator.clock import Clock
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.controlled_shutdown import ControlledShutdownRequest

_log = logging.getLogger(__name__)


async def hand_over(node: WiredBroker, settings: Settings, clock: Clock) -> None:
    """Have the controller move leadership away; tried again as long as there is something left, and somebody
    who could take it."""
    tries = 1 + settings["controlled.shutdown.max.retries"]
    for number in range(1, tries + 1):
        if _is_alone(node):
            return
        outcome = await _ask(node)
        if outcome is None:
            return
        _log.warning("Controlled shutdown, try %d of %d: %s", number, tries, outcome)
        if number < tries:
            await _pause(node, settings["controlled.shutdown.retry.backoff.ms"] / 1000, clock)


def _is_alone(node: WiredBroker) -> bool:
    return all(broker_id == node.broker_id for broker_id in node.metadata.brokers)


async def _ask(node: WiredBroker) -> str | None:
    """Ask once; what is wrong, if anything is."""
    request = ControlledShutdownRequest(broker_id=node.broker_id, broker_epoch=node.membership.broker_epoch)
    try:
        response = await node.ask_controller(request)
    except (ChannelError, BrokerError) as error:
        return str(error)
    if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
        return None
    return f"error {response.error_code}, {len(response.remaining_partitions)} partitions left"


async def _pause(node: WiredBroker, seconds: float, clock: Clock) -> None:
    """Wait until the next try; no longer once the other brokers have all gone."""
    over: Deferred[None] = Deferred()
    timer = clock.callLater(seconds, over.callback, None)
    while not over.called and not _is_alone(node):
        await DeferredList([over, node.metadata.next_update()], fireOnOneCallback=True)
    if timer.active():
        timer.cancel()
