"""Connects to a host by name: tries its IPv4 and IPv6 addresses one after the other."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast_log.broker.network.interfaces import FrameReceiver
from holdfast_log.coordinator.clock import Clock


def addresses_of(reactor: Any, host: str) -> Deferred[Sequence[str]]:
    """The IPv4 and IPv6 addresses of a host, in the system's order; an address resolves to itself. Empty if
    the name is unknown."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = _Found()
        reactor.nameResolver.resolveHostName(found, host)
        return found.done
    return succeed([host])


@implementer(IResolutionReceiver)
class _Found:
    """Collects the addresses that a resolver finds."""

    def __init__(self) -> None:
        self.done: Deferred[Sequence[str]] = Deferred()
        self._addresses: dict[str, None] = {}

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Nothing to do: a resolution is never cancelled."""

    def addressResolved(self, address: IAddress) -> None:
        self._addresses[address.host] = None

    def resolutionComplete(self) -> None:
        self.done.callback(list(self._addresses))


class Attempts:
    """The attempts to open one connection: calls `connect(address, timeout_s, failed)` for each address in
    turn until one succeeds. Name resolution and all attempts share `timeout_ms`."""

    def __init__(
        self,
        clock: Clock,
        receiver: FrameReceiver,
        timeout_ms: int,
        connect: Callable[[str, float, Callable[[str], None]], None],
    ) -> None:
        self._clock = clock
        self._receiver = receiver
        self._connect = connect
        self._deadline_s = clock.seconds() + timeout_ms / 1000
        self._rest: list[str] = []

    def begin(self, host: str, addresses: Deferred[Sequence[str]]) -> None:
        """Connect to one of the addresses of `host`."""
        self._timer = self._clock.callLater(
            self._deadline_s - self._clock.seconds(), self._unresolved, addresses, host
        )
        addresses.addCallbacks(self._resolved, self._not_resolved, callbackArgs=(host,), errbackArgs=(host,))

    def _unresolved(self, addresses: Deferred[Sequence[str]], host: str) -> None:
        addresses.cancel()

    def _not_resolved(self, failure: Failure, host: str) -> None:
        if self._timer.active():
            self._timer.cancel()
        self._receiver.connection_lost(f"resolving the host name {host} failed: {failure.value}")

    def _resolved(self, addresses: Sequence[str], host: str) -> None:
        self._timer.cancel()
        self._rest = list(addresses)
        self._next(f"{host} has no address")

    def _next(self, reason: str) -> None:
        left_s = self._deadline_s - self._clock.seconds()
        if self._rest and left_s > 0:
            self._connect(self._rest.pop(0), left_s, self._next)
        else:
            self._receiver.connection_lost(reason)
