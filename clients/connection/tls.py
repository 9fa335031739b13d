"""TLS: a channel with a handshake, and the context made from a client's settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast_log.clients.connection.network import SocketChannel
from holdfast_log.clients.errors import ConfigError
from holdfast_log.protocol.tls.contexts import TlsError, connecting_context
from holdfast_log.protocol.tls.stores import StoreError, read_stores
from holdfast_log.protocol.wire import Buffer

_GATHER_BYTES = 64 * 1024
"""Small buffers are sent together up to this size."""
_DIRECT_BYTES = 256 * 1024
"""Maximum bytes given to OpenSSL in one call."""
_FILL_BYTES = 256 * 1024
"""Maximum bytes decrypted in one call."""


class TlsChannel(SocketChannel):
    """A TLS connection over TCP."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext,
        send_bytes: int,
        receive_bytes: int,
        on_close: Callable[[SocketChannel], None],
    ) -> None:
        super().__init__(host, port, send_bytes=send_bytes, receive_bytes=receive_bytes, on_close=on_close)
        self._host = host
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._is_shaken = False
        self._has_ended = False
        self._chunk: Buffer = b""  # given to OpenSSL, perhaps in part

    def finish_connecting(self) -> bool:
        if not self._is_shaken and super().finish_connecting():
            if self._tls is None:  # Not earlier: Python wraps only a connected socket.
                self.socket = self._tls = self._context.wrap_socket(
                    self.socket, server_hostname=self._host, do_handshake_on_connect=False
                )
            self.wants_write = False
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLWantWriteError:
                self.wants_write = True
                return False
            self._is_shaken = True
        return self._is_shaken

    def send(self, buffers: Sequence[Buffer]) -> int:
        # A write that has to be repeated must have the same bytes.
        chunk = self._chunk or _gathered(buffers)
        try:
            self.socket.send(chunk)  # It sends all or has to be repeated.
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._chunk = chunk
            return 0
        self._chunk = b""
        return len(chunk)

    def receive_into(self, buffer: memoryview) -> int | None:
        """As of every channel; a call decrypts several records of TLS, which have at most 16 KiB each."""
        filled, end = 0, min(len(buffer), _FILL_BYTES)
        while filled < end and not self._has_ended:
            try:
                count = self.socket.recv_into(buffer[filled:end])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return filled or None
            self._has_ended = count == 0
            filled += count
        return filled

    def has_pending(self) -> bool:
        if self._tls is None or not self._is_shaken:
            return False
        return self._has_ended or self._tls.pending() > 0


def _gathered(buffers: Sequence[Buffer]) -> Buffer:
    """The first bytes to send: a large buffer, or several small ones, so that they share a record of TLS."""
    if len(buffers) == 1 or len(buffers[0]) >= _GATHER_BYTES:
        return memoryview(buffers[0])[:_DIRECT_BYTES]
    gathered = bytearray()
    for buffer in buffers:
        gathered += memoryview(buffer)[: _GATHER_BYTES - len(gathered)]
        if len(gathered) >= _GATHER_BYTES:
            break
    return gathered


def tls_channels(settings: Mapping[str, Any]) -> Callable[..., TlsChannel]:
    """A factory of channels for `security.protocol=SSL`. Raises ConfigError as `tls_context` does."""
    return partial(TlsChannel, context=tls_context(settings))


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """The context made from the settings `ssl.*`.

    Raises ConfigError if a file of certificates or keys cannot be used.
    """
    try:
        return connecting_context(settings, read_stores(settings))
    except (TlsError, StoreError) as error:
        raise ConfigError(str(error)) from None
