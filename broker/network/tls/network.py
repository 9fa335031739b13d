"""TLS as a `Network`: connections of `TcpNetwork` with a handshake, for one listener of the broker."""

from __future__ import annotations

import functools
import socket
import ssl
from typing import cast

from holdfast_log.broker.network.interfaces import Accept, FrameReceiver, Port
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.network.tls.handshakes import Handshakes
from holdfast_log.broker.network.tls.identity import TlsIdentity
from holdfast_log.broker.network.tls.principals import PrincipalMapper
from holdfast_log.broker.network.tls.stream import TlsStream
from holdfast_log.broker.network.tls.wire import TlsClient, TlsServer


class TlsNetwork:
    """Accepts and opens connections over TLS. Each uses what `identity` has when its handshake begins.

    `accepting` bounds the handshakes of those that are accepted, `connecting` of those that are opened.
    """

    def __init__(
        self, tcp: TcpNetwork, identity: TlsIdentity, accepting: Handshakes, connecting: Handshakes
    ) -> None:
        self._tcp = tcp
        self._identity = identity
        self._accepting = accepting
        self._connecting = connecting

    def listen(self, host: str, port: int, accept: Accept) -> Port:
        server = functools.partial(TlsServer, self._accepting, self._accepted, self._mapper)
        return self._tcp.listen(host, port, accept, server)

    def connect(self, host: str, port: int, receiver: FrameReceiver, timeout_ms: int) -> None:
        wrap = functools.partial(self._opened, host)
        client = functools.partial(TlsClient, self._connecting, wrap, host)
        self._tcp.connect(host, port, receiver, timeout_ms, client)

    def _mapper(self) -> PrincipalMapper:
        return self._identity.current.mapper

    def _accepted(self, plain: socket.socket) -> TlsStream:
        return _wrapped(self._identity.current.accepting, plain, None)

    def _opened(self, host: str, plain: socket.socket) -> TlsStream:
        return _wrapped(self._identity.current.connecting, plain, host)


def _wrapped(context: ssl.SSLContext, plain: socket.socket, host: str | None) -> TlsStream:
    wrapped = context.wrap_socket(
        plain, server_side=host is None, do_handshake_on_connect=False, server_hostname=host
    )
    return cast(TlsStream, wrapped)
