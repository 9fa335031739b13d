"""The way to the other brokers, and to this one: requests in order, whoever they go to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred, fail

from broker.dispatch import Dispatcher
from broker.network.interfaces import Address, Network
from broker.network.outbound import BrokerChannel, ChannelLost, ChannelSettings
from coordinator.clock import Clock
from protocol.api import Request, Response

R = TypeVar("R", bound=Response)


class Peers:
    """One channel to each broker, made when it is first needed.

    `address_of` gives where a broker listens for other brokers, None where it is not known; it is asked anew
    for each request, since a broker may come back elsewhere. Requests to this broker itself never leave the
    process.
    """

    def __init__(
        self,
        local_id: int,
        dispatcher: Dispatcher,
        network: Network,
        clock: Clock,
        random: Callable[[], float],
        settings: ChannelSettings,
        address_of: Callable[[int], Address | None],
    ) -> None:
        self._local_id = local_id
        self._dispatcher = dispatcher
        self._network = network
        self._clock = clock
        self._random = random
        self._settings = settings
        self._address_of = address_of
        self._channels: dict[int, BrokerChannel] = {}

    def send(self, broker_id: int, request: Request[R], timeout_ms: int | None = None) -> Deferred[R]:
        """The broker's response. Fails with `ChannelError`; raises nothing."""
        if broker_id == self._local_id:
            return self._dispatcher.call_local(request)
        address = self._address_of(broker_id)
        if address is None:
            return fail(ChannelLost(f"broker {broker_id} is not known"))
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = BrokerChannel(
                address, self._network, self._clock, self._random, self._settings
            )
        channel.move(address)
        return channel.send(request, timeout_ms=timeout_ms)

    def forget(self, broker_id: int) -> None:
        """Close the channel to a broker that is gone; what it has not answered fails."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        for broker_id in list(self._channels):
            self.forget(broker_id)
