"""TCP on Twisted's reactor, as a `Network`: ports that accept connections, and connections that this side
opens.

The sockets themselves are in `broker.network.transport`.
"""

# Twisted's transports have only partial annotations.
# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast_log.broker.network.attempts import Attempts
from holdfast_log.broker.network.attempts import addresses_of as _addresses_of
from holdfast_log.broker.network.framing import FrameBuffers
from holdfast_log.broker.network.interfaces import Accept, Address, FrameReceiver, Port
from holdfast_log.broker.network.memory import NO_LIMIT, RequestMemories, RequestMemory
from holdfast_log.broker.network.socket_options import SocketOptions
from holdfast_log.broker.network.transport import FrameClient, FrameLink, FramePort, FrameServer
from holdfast_log.coordinator.repeated_log import RepeatedLog


@implementer(IProtocolFactory)
class _Accepting:
    """Makes a link for each peer that `accept` admits."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept

    def doStart(self) -> None:
        """Nothing to do when the port opens."""

    def doStop(self) -> None:
        """Nothing to do when the port closes."""

    def buildProtocol(self, address: Any) -> FrameLink | None:
        receiver = self._accept(Address(address.host, address.port))
        return None if receiver is None else FrameLink(receiver)


class _Connecting(ClientFactory):
    """Makes the link of a connection that this side opens; reports when the connection fails."""

    noisy = False

    def __init__(self, receiver: FrameReceiver, failed: Callable[[str], None]) -> None:
        self._receiver = receiver
        self._failed = failed

    def buildProtocol(self, address: IAddress | None) -> Any:
        return FrameLink(self._receiver)

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self._failed(reason.getErrorMessage())


class _FrameConnector(tcp.Connector):
    def __init__(self, transport: Callable[[tcp.Connector], FrameClient], *args: Any) -> None:
        super().__init__(*args)
        self._transport = transport

    def _makeTransport(self) -> FrameClient:
        return self._transport(self)


class _TcpPort:
    def __init__(self, port: tcp.Port) -> None:
        self._port = port
        host = port.getHost()
        self.address = Address(host.host, host.port)

    def close(self) -> None:
        self._port.stopListening()


class TcpNetwork:
    """The system's TCP, as a `Network`. `reactor` is a Twisted reactor that watches descriptors.

    `memory` bounds the large frames of all accepted connections, except those of the listener
    `brokers_listener`, which has `brokers_memory_bytes` of its own; responses need no bound, since
    this side limits its requests. A large frame is received within `receive_timeout_ms`.
    `addresses_of` resolves a host; by default with the system's resolver.
    """

    def __init__(
        self,
        reactor: Any,
        options: SocketOptions | None = None,
        memory: RequestMemory | None = None,
        addresses_of: Callable[[str], Deferred[Sequence[str]]] | None = None,
        receive_timeout_ms: int = 30_000,
        brokers_listener: str = "",
        brokers_memory_bytes: int = NO_LIMIT,
    ) -> None:
        self._reactor = reactor
        self._addresses_of = addresses_of or functools.partial(_addresses_of, reactor)
        own_memory = RequestMemory(brokers_memory_bytes) if brokers_listener else None
        self._memories = RequestMemories(
            reactor, memory or RequestMemory(), receive_timeout_ms, brokers_listener, own_memory
        )
        self._options = options or SocketOptions()
        self._buffers = FrameBuffers()
        self._log = RepeatedLog(reactor)

    def listen(
        self, host: str, port: int, accept: Accept, server: Callable[..., FrameServer] = FrameServer
    ) -> Port:
        """`server` makes the connections; it takes the arguments of `FrameServer`."""
        transport = functools.partial(server, self._buffers, self._memories, self._log)
        listening = FramePort(
            self._options, transport, port, _Accepting(accept), self._options.backlog, host, self._reactor
        )
        try:
            listening.startListening()
        except CannotListenError as error:
            raise OSError(getattr(error.socketError, "errno", None), str(error)) from error
        return _TcpPort(listening)

    def connect(
        self,
        host: str,
        port: int,
        receiver: FrameReceiver,
        timeout_ms: int,
        client: Callable[..., FrameClient] = FrameClient,
    ) -> None:
        """`client` makes the connection; it takes the arguments of `FrameClient`."""
        transport = functools.partial(client, self._buffers, receiver, self._log)

        def connect_to(address: str, timeout_s: float, failed: Callable[[str], None]) -> None:
            factory = _Connecting(receiver, failed)
            connector = _FrameConnector(transport, address, port, factory, timeout_s, None, self._reactor)
            connector.connect()

        attempts = Attempts(self._reactor, receiver, timeout_ms, connect_to)
        attempts.begin(host, self._addresses_of(host))
