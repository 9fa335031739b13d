"""A server of frames over TLS for the tests of this room, and blocking peers of it."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from holdfast_log.broker.network.connection import FrameHandler
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.network.tls.handshakes import Handshakes
from holdfast_log.broker.network.tls.identity import TlsIdentity, load_material
from holdfast_log.broker.network.tls.network import TlsNetwork
from holdfast_log.broker.network.tls.settings import SETTINGS, HandshakeLimits
from holdfast_log.clients.settings import Settings
from tests.broker.network.served import LIMITS, Served, echo
from tests.certificates import BOTH_NAMES, Authority
from tests.reactor import in_thread, reactor

AUTHORITY = Authority()
STRANGER = Authority("An authority that nobody trusts")


PATIENT = HandshakeLimits(timeout_ms=600_000)


def identity(directory: Path, **given: str) -> TlsIdentity:
    """What the listener of this test is made of; names of settings have _ in place of dots."""
    server = AUTHORITY.issue("broker", BOTH_NAMES)
    values = {
        "ssl.keystore.location": server.write(directory / "server.pem"),
        "ssl.kernel.tls": "auto",
        "ssl.truststore.location": AUTHORITY.write(directory / "authority.pem"),
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    return TlsIdentity("SECURE", load_material(Settings(SETTINGS, values)))


class Server(Served):
    """Connections over TLS on a free port, each served by one handler."""

    def __init__(
        self, identity: TlsIdentity, handler: FrameHandler = echo, handshakes: HandshakeLimits | None = None
    ) -> None:
        self.handshakes = Handshakes(reactor, handshakes or PATIENT)
        self.network = TlsNetwork(
            TcpNetwork(reactor), identity, self.handshakes, Handshakes(reactor, PATIENT)
        )
        super().__init__(self.network, handler, LIMITS)


@contextlib.contextmanager
def serving(*args: Any) -> Iterator[Server]:
    server = Server(*args)
    try:
        yield server
    finally:
        server.stop()


def client_context(certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


class TlsPeer:
    """A blocking TLS socket, used from a worker thread so that the reactor runs meanwhile."""

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self.stream = stream

    def __enter__(self) -> TlsPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def send(self, data: bytes) -> Deferred[None]:
        return in_thread(self.stream.sendall, data)

    def receive(self, count: int) -> Deferred[bytes]:
        return in_thread(self._receive, count)

    def converse(self, data: bytes, count: int, reads: threading.Event) -> Deferred[bytes]:
        """Send, and receive `count` bytes meanwhile, once `reads` is set. One thread does both: OpenSSL's
        connections are not made for two at a time."""
        return in_thread(self._converse, memoryview(data), count, reads)

    def _converse(self, left: memoryview, count: int, reads: threading.Event) -> bytes:
        self.stream.setblocking(False)
        received = bytearray()
        while left or len(received) < count:
            is_reading = reads.is_set() and len(received) < count
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if left:
                    left = left[self.stream.send(left[:65536]) :]
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                while is_reading and len(received) < count:
                    data = self.stream.recv(count - len(received))
                    if not data:
                        raise EOFError(f"{len(received)} of {count} bytes, then the end")
                    received += data
            watched = [self.stream]
            select.select(watched if is_reading else [], watched if left else [], [], 0.01)
        self.stream.settimeout(60)
        return bytes(received)

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            data = self.stream.recv(min(count - len(received), 1 << 20))
            if not data:
                raise EOFError(f"{len(received)} of {count} bytes, then the end")
            received += data
        return bytes(received)


def _connected(address: Address, context: ssl.SSLContext, receive_bytes: int | None) -> ssl.SSLSocket:
    plain = socket.socket()
    if receive_bytes is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plain.settimeout(60)
    plain.connect((address.host, address.port))
    return context.wrap_socket(plain, server_hostname="localhost")


async def connected(
    server: Server, context: ssl.SSLContext | None = None, receive_bytes: int | None = None
) -> TlsPeer:
    """A peer whose handshake is done. Raises ssl.SSLError."""
    stream = await in_thread(_connected, server.address, context or client_context(), receive_bytes)
    return TlsPeer(stream)


def first_message() -> bytes:
    """What a client of TLS sends first."""
    sent = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def plain(server: Server) -> socket.socket:
    return socket.create_connection((server.address.host, server.address.port), 60)


def _is_closed(peer: socket.socket) -> bool:
    try:
        while peer.recv(4096):
            pass
    except (ConnectionResetError, ssl.SSLError):
        pass
    return True


def is_closed(peer: socket.socket) -> Deferred[bool]:
    """Wait until the server has closed the connection."""
    return in_thread(_is_closed, peer)
