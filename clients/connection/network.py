"""Sockets: the operating system's network behind two small interfaces.

A `Channel` is one connection that never blocks; a `ClientNetwork` opens channels, waits until one is ready,
and has the clock. `SystemNetwork` is the real one. With a simulated one in its place, the clients touch no
socket and no clock.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from holdfast_log.clients.boot_clock import boot_ms
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.protocol.wire import Buffer


class Channel(Protocol):
    """A connection, established or being established. Every method returns at once."""

    def finish_connecting(self) -> bool:
        """Whether the connection is established. Raises OSError if it has failed."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send as much of `buffers` as fits; returns the number of bytes sent. Raises OSError."""
        ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """Receive into `buffer`; returns the number of bytes: 0 at the end of the stream, None for none yet.

        Raises OSError.
        """
        ...

    def close(self) -> None: ...


class ClientNetwork(Protocol):
    """Opens channels and waits for them."""

    def connect(self, host: str, port: int) -> Channel:
        """A channel that begins to connect to the address. Raises OSError if that fails at once."""
        ...

    def wait(self, timeout_ms: int, writing: Collection[Channel]) -> list[Channel]:
        """The channels that are ready to receive from, or, of those `writing`, to send to.

        Waits for the first at most `timeout_ms`; returns earlier if `wake` is called.
        """
        ...

    def wake(self) -> None:
        """Make a `wait` under way, or else the next one, return at once. May be called by any thread."""
        ...

    def now_ms(self) -> int:
        """The time since some fixed moment, in ms; it never goes back."""
        ...

    def wall_ms(self) -> int:
        """The time of day, in ms since the epoch."""
        ...

    def close(self) -> None: ...


class SocketChannel:
    """A TCP connection. `clients.connection.tls` has the one over TLS.

    If connecting to one address of a host fails at once, the next address is tried.
    """

    wants_write = False
    """Whether the channel needs to write even if nothing is to be sent."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        send_bytes: int,
        receive_bytes: int,
        on_close: Callable[[SocketChannel], None],
    ) -> None:
        self._on_close = on_close
        self._is_connected = False
        self.socket = _begin_connecting(host, port, send_bytes, receive_bytes)

    def fileno(self) -> int:
        return self.socket.fileno()

    def finish_connecting(self) -> bool:
        if not self._is_connected:
            error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            try:
                self.socket.getpeername()
            except OSError:
                return False
            self._is_connected = True
        return True

    def send(self, buffers: Sequence[Buffer]) -> int:
        try:
            return self.socket.sendmsg(buffers[:_MAX_BUFFERS])
        except BlockingIOError:
            return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        try:
            return self.socket.recv_into(buffer)
        except BlockingIOError:
            return None

    def has_pending(self) -> bool:
        """Whether received bytes are buffered where the selector does not see them."""
        return False

    def close(self) -> None:
        self._on_close(self)
        self.socket.close()


_SHOWN_HOST = 100
_MAX_BUFFERS = 512  # sendmsg takes 1024 on Linux, other systems less.


def _begin_connecting(host: str, port: int, send_bytes: int, receive_bytes: int) -> socket.socket:
    failure: OSError = OSError(f"{host} has no address")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (ValueError, OverflowError) as error:  # A broker may name any text as its host.
        raise OSError(f"{host[:_SHOWN_HOST]!r} is no host name: {error}") from None
    for family, kind, protocol, _, address in found:
        try:
            candidate = socket.socket(family, kind, protocol)
        except OSError as error:
            failure = error
            continue
        candidate.setblocking(False)
        candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_bytes >= 0:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if receive_bytes >= 0:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            candidate.connect(address)
        except BlockingIOError:
            return candidate
        except OSError as error:
            candidate.close()
            failure = error
        else:
            return candidate
    raise failure


class InterruptedCall(RequestTimeoutError):
    """Ends a call whose caller was cancelled in another thread. As after a timeout, what was asked for may
    still happen. No application sees it."""

    retriable = False


def interrupted(call: str) -> InterruptedCall:
    """The error that ends a call."""
    return InterruptedCall(f"{call} was cancelled while it waited; what it asked for may still happen")


class SystemNetwork:
    """The operating system's network and clock, over `selectors`. All but `wake` belong to one thread."""

    def __init__(
        self,
        *,
        secure: Callable[..., SocketChannel] | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        self._new_channel = secure or SocketChannel
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._selector = selectors.DefaultSelector()
        self._interest: dict[SocketChannel, int] = {}
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._is_waking = False

    def connect(self, host: str, port: int) -> SocketChannel:
        channel = self._new_channel(
            host,
            port,
            send_bytes=self._send_buffer_bytes,
            receive_bytes=self._receive_buffer_bytes,
            on_close=self._forget,
        )
        self._selector.register(channel, selectors.EVENT_READ, channel)
        self._interest[channel] = selectors.EVENT_READ
        return channel

    def wait(self, timeout_ms: int, writing: Collection[Channel]) -> list[Channel]:
        ready: list[Channel] = []
        for channel, interest in self._interest.items():
            wants_write = channel.wants_write or channel in writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_write else 0)
            if events != interest:
                self._selector.modify(channel, events, channel)
                self._interest[channel] = events
            if channel.has_pending():
                ready.append(channel)
        for key, _ in self._selector.select(0 if ready else max(0, timeout_ms) / 1000):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(64)
                # Only now: a wake() before this line sends nothing, but its cause is seen after this wait.
                self._is_waking = False
            elif key.data not in ready:
                ready.append(key.data)
        return ready

    def _forget(self, channel: SocketChannel) -> None:
        del self._interest[channel]
        self._selector.unregister(channel)

    def wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            with contextlib.suppress(
                OSError
            ):  # A full pipe wakes as well; a closed network has no `wait` to wake.
                self._waker.send(b"\0")

    def now_ms(self) -> int:
        return boot_ms()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        for channel in list(self._interest):
            channel.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()
