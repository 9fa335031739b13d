"""Connections within the machine are not paced; others have the congestion control of the system."""

from __future__ import annotations

import errno
import socket
from typing import Any, cast

import pytest

from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.socket_options import PACING, UNPACED, begin_unpaced, is_local, pace
from holdfast_log.broker.network.tcp_network import TcpNetwork
from tests.reactor import on_reactor, reactor, until

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system has no such option")


class Socket:
    """A socket of a machine with a congestion control. With `is_strict` none may be chosen."""

    def __init__(self, control: bytes, peer: str = "192.0.2.7", *, is_strict: bool = False) -> None:
        self.control = control
        self._peer = peer
        self._is_strict = is_strict

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        return self.control.ljust(size, b"\0")

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        if self._is_strict:
            raise PermissionError(errno.EPERM, "not allowed")
        self.control = value

    def getpeername(self) -> tuple[str, int]:
        if not self._peer:
            raise OSError(errno.ENOTCONN, "it went away")
        return self._peer, 40000

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.1", 9092


def as_socket(sock: Socket) -> socket.socket:
    return cast(socket.socket, sock)


def test_connections_begin_without_pacing() -> None:
    listening = Socket(b"bbr")
    assert begin_unpaced(as_socket(listening)) == b"bbr"
    assert listening.control == UNPACED


def test_a_congestion_control_that_does_not_pace_stays() -> None:
    listening = Socket(b"cubic")
    assert begin_unpaced(as_socket(listening)) == b""
    assert listening.control == b"cubic"


def test_where_none_may_be_chosen_all_connections_have_the_systems() -> None:
    listening = Socket(b"bbr", is_strict=True)
    assert begin_unpaced(as_socket(listening)) == b""
    assert listening.control == b"bbr"


@pytest.mark.parametrize(
    ("peer", "control"),
    [("192.0.2.7", b"bbr"), ("192.0.2.1", UNPACED), ("127.0.0.1", UNPACED), ("", UNPACED)],
    ids=["another machine", "this machine", "loopback", "gone"],
)
def test_only_connections_from_other_machines_are_paced(peer: str, control: bytes) -> None:
    accepted = Socket(UNPACED, peer)
    pace(as_socket(accepted), b"bbr")
    assert accepted.control == control


@pytest.mark.parametrize(
    ("peer", "own", "expected"),
    [
        ("127.0.0.1", "127.0.0.2", True),
        ("::1", "::1", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
    ],
)
def test_a_peer_is_local_by_its_address(peer: str, own: str, expected: bool) -> None:
    assert is_local(peer, own) is expected


@on_reactor
async def test_a_connection_on_this_machine_is_not_paced() -> None:
    limits = ConnectionLimits(frame_bytes_max=1000, buffered_bytes_max=1000, in_flight_requests_max=1)
    accepted: list[ServerConnection] = []

    def accept(peer: Address) -> ServerConnection:
        accepted.append(ServerConnection(1, "L", peer, lambda *_: None, limits, reactor))
        return accepted[-1]

    port = TcpNetwork(reactor).listen("127.0.0.1", 0, accept)
    with socket.create_connection((port.address.host, port.address.port)) as client:
        systems = _control_of(client)
        await until(lambda: bool(accepted) and accepted[0]._wire is not None)
        wire = cast(Any, accepted[0]._wire)
        assert _control_of(wire.socket) == (UNPACED if systems in PACING else systems)
    port.close()
    accepted[0].close("the test is over")


def _control_of(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
