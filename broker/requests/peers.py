"""Sends requests from this broker to any broker, itself included; each broker answers in order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred, fail

from holdfast_log.broker.network.handshake import CallerHandshake
from holdfast_log.broker.network.interfaces import Address, Network
from holdfast_log.broker.network.outbound import BrokerChannel, ChannelLost, ChannelSettings
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.sasl.callers import SaslCaller

R = TypeVar("R", bound=Response)


class Peers:
    """One channel to each broker, opened when it is first needed.

    `address_of` returns the address at which a broker listens for other brokers, None if it is unknown. It is
    called for each request, because a broker may restart at another address. Requests to this broker itself
    do not use the network. `handshakes` begins a handshake with a broker; None: brokers need not prove who
    they are. `login` begins a SASL authentication; None: the brokers' listener wants none.
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
        handshakes: Callable[[int], CallerHandshake] | None = None,
        login: Callable[[], SaslCaller] | None = None,
    ) -> None:
        self._handshakes = handshakes
        self._login = login
        self._local_id = local_id
        self._dispatcher = dispatcher
        self._network = network
        self._clock = clock
        self._random = random
        self._settings = settings
        self._address_of = address_of
        self._channels: dict[int, BrokerChannel] = {}

    @property
    def client_id(self) -> str:
        """The client id of requests to other brokers."""
        return self._settings.client_id

    def send(self, broker_id: int, request: Request[R], timeout_ms: int | None = None) -> Deferred[R]:
        """The broker's response. Fails with `ChannelError`; raises nothing."""
        if broker_id == self._local_id:
            return self._dispatcher.call_local(request)
        address = self._address_of(broker_id)
        if address is None:
            return fail(ChannelLost(f"the address of broker {broker_id} is unknown"))
        channel = self._channels.get(broker_id)
        if channel is None:
            handshake = None if self._handshakes is None else functools.partial(self._handshakes, broker_id)
            channel = self._channels[broker_id] = BrokerChannel(
                address,
                self._network,
                self._clock,
                self._random,
                self._settings,
                handshake,
                self._login,
            )
        channel.move(address)
        return channel.send(request, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Close all channels; requests without an answer fail."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()


class ActiveController:
    """Sends requests to the broker that is the controller at the time."""

    def __init__(self, candidacy: Candidacy, peers: Peers) -> None:
        self._candidacy = candidacy
        self._peers = peers

    def ask(self, request: Request[R]) -> Deferred[R]:
        """The controller's response. Fails with `ChannelError`, also if there is no controller."""
        controller_id = self._candidacy.controller_id
        if controller_id is None:
            return fail(ChannelLost("the cluster has no controller at the moment"))
        return self._peers.send(controller_id, request)
