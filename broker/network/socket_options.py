"""Options of the broker's sockets: sizes of buffers, and no pacing of what never leaves the machine.

Some congestion controls of Linux (`bbr`) pace what a socket sends by timers, so that it does not come in
bursts to a link that others share. Between two processes of one machine there is no such link, and the timers
take more processor time than the bytes. So clients and brokers on the same machine are sent to without.

A connection that was accepted with pacing keeps it under every other congestion control. Therefore a
listening socket gets one that does not pace, which accepted sockets inherit, and those of other machines get
the system's back.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.setting_groups import settings_group

PACING = frozenset((b"bbr",))
"""Congestion controls that pace."""
UNPACED = b"reno"
"""One that does not. Every Linux has it, and lets every user choose it."""
_NAME_BYTES = 16


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Sizes of socket buffers (-1: the system decides), and of the queue of new connections."""

    send_buffer_bytes: Annotated[int, "socket.send.buffer.bytes"] = 100 * 1024
    receive_buffer_bytes: Annotated[int, "socket.receive.buffer.bytes"] = -1
    backlog: Annotated[int, "socket.listen.backlog.size"] = 50

    def apply(self, sock: socket.socket) -> None:
        if self.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


def begin_unpaced(listening: socket.socket) -> bytes:
    """Have connections to a socket begin without pacing. Returns the name of the congestion control that the
    system has chosen, for `pace`; b"" if it does not pace, or cannot be changed."""
    if not hasattr(socket, "TCP_CONGESTION"):
        return b""
    try:
        name = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES).rstrip(b"\0")
        if name not in PACING:
            return b""
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
    except OSError:
        return b""
    return name


def pace(accepted: socket.socket, name: bytes) -> None:
    """Give the congestion control of that name to a connection, unless its peer is on this machine."""
    # A peer that has gone already has no address, and needs no pacing.
    with contextlib.suppress(OSError):
        if not is_local(accepted.getpeername()[0], accepted.getsockname()[0]):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def is_local(peer: str, own: str) -> bool:
    """Whether the peer of a connection, by its address, is on the machine with the address `own`."""
    return peer == own or ipaddress.ip_address(peer.partition("%")[0]).is_loopback
